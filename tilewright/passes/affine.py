"""Integer expressions over run-time symbols: what access analysis says offsets and extents are.

An :class:`Expr` is a polynomial with integer coefficients in normal form (so equal expressions compare
equal), in practice affine. What is not a polynomial (floor division, remainder, minimum, an unknown SSA
value) is a symbol of its own, made canonical by its arguments.

Symbols belong to the :class:`Symbols` table of one analysis and compare by identity; expressions of two
tables are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from xdsl.ir.affine import AffineBinaryOpKind, AffineExpr

from tilewright.dialects.upstream.affine_expressions import evaluated
from tilewright.frozen import frozen

Monomial: TypeAlias = "tuple[Symbol, ...]"
"""Symbols in table order, repeated for powers; () is the constant's."""


_LONGEST_NAME = 200


class Kind(StrEnum):
    """What a symbol stands for; ``Symbol.key`` tells which one."""

    PROGRAM_ID = "program_id"  # key: axis 0, 1, 2
    GRID_DIM = "grid_dim"  # key: axis
    LOCAL_ID = "local_id"  # key: name of gpu.subgroup_id and the like, with its axis
    COUNTER = "counter"  # key: (loop op, dimension); 0 in its first iteration, +1 per iteration
    EXTENT = "extent"  # key: (base value, dimension), in elements
    STRIDE = "stride"  # key: (base value, dimension), in elements
    VALUE = "value"  # key: an SSA value (kernel argument, or of unknown origin)
    APPLY = "apply"  # key: (operator, arguments); canonical function of them


@dataclass(frozen=True, eq=False, repr=False)
class Symbol:
    """An integer that is not known at compile time. Made by :class:`Symbols` only.

    ``lower`` and ``upper`` are inclusive bounds where they are known. ``atoms`` are the program ids,
    counters, extents and values that it depends on; for an SSA value of unknown origin that includes
    all program ids and the counters of the loops around its definition.
    """

    kind: Kind
    key: Hashable
    serial: int
    name: str
    args: tuple[Expr, ...] = ()
    lower: int | None = None
    upper: int | None = None
    atoms: frozenset[Symbol] = field(default=frozenset())

    def __repr__(self) -> str:
        return self.name

    def depends_on(self, other: Symbol) -> bool:
        return other is self or other in self.atoms


class Symbols:
    """Interns symbols, so that one meaning is one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[Kind, Hashable], Symbol] = {}

    def get(
        self,
        kind: Kind,
        key: Hashable,
        name: str,
        *,
        lower: int | None = None,
        upper: int | None = None,
        args: tuple[Expr, ...] = (),
        atoms: Iterable[Symbol] = (),
    ) -> Symbol:
        symbol = self._known.get((kind, key))
        if symbol is None:
            symbol = Symbol(kind, key, len(self._known), name, args, lower, upper, frozenset(atoms))
            self._known[kind, key] = symbol
        return symbol

    def apply(
        self, operator: str, *args: Expr, lower: int | None = None, upper: int | None = None
    ) -> Expr:
        """The canonical symbol of ``operator(args)``, as an expression."""
        key = (operator, args)
        symbol = self._known.get((Kind.APPLY, key))
        if symbol is None:
            told = ", ".join(map(str, args))
            if len(told) > _LONGEST_NAME:  # of what is computed of itself, names would double
                told = f"..{len(self._known)}"
            atoms = frozenset[Symbol]().union(*(a.atoms for a in args))
            name = f"{operator}({told})"
            symbol = self.get(
                Kind.APPLY, key, name, lower=lower, upper=upper, args=args, atoms=atoms
            )
        return Expr.symbol(symbol)

    def floordiv(self, e: Expr, divisor: Expr) -> Expr:
        """``e // divisor`` rounded down."""
        c = divisor.constant
        if c is None or c <= 0:
            if e == divisor:
                return Expr.of(1)
            return self.apply("floordiv", e, divisor, lower=0 if _nonnegative(e, divisor) else None)
        whole = Expr({m: k // c for m, k in e.terms.items()})
        rest = Expr({m: k % c for m, k in e.terms.items()})
        low, high = rest.range()
        if low is not None and high is not None and low // c == high // c:
            return whole + low // c
        inner = rest.as_symbol()
        if inner is not None and _is_apply(inner, "floordiv"):
            by = inner.args[1].constant
            if by is not None:
                return whole + self.floordiv(inner.args[0], Expr.of(by * c))
        upper = None if high is None else high // c
        return whole + self.apply(
            "floordiv", rest, divisor, lower=None if low is None else low // c, upper=upper
        )

    def mod(self, e: Expr, divisor: Expr) -> Expr:
        """``e - (e // divisor) * divisor``, between 0 and divisor - 1 for a positive divisor."""
        c = divisor.constant
        if c is None or c <= 0:
            return self.apply("mod", e, divisor, lower=0 if _nonnegative(e, divisor) else None)
        rest = Expr({m: k % c for m, k in e.terms.items()})
        low, high = rest.range()
        if low is not None and high is not None and low // c == high // c:
            return rest - (low // c) * c
        return self.apply("mod", rest, divisor, lower=0, upper=c - 1)

    def ceildiv(self, e: Expr, divisor: Expr) -> Expr:
        if divisor.constant is not None and divisor.constant > 0:
            return self.floordiv(e + (divisor.constant - 1), divisor)
        return self.apply("ceildiv", e, divisor, lower=0 if _nonnegative(e, divisor) else None)

    def affine(self, e: AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr]) -> Expr:
        """MLIR's affine expression ``e`` of the given operands."""
        operations: Mapping[AffineBinaryOpKind, Callable[[Expr, Expr], Expr]] = {
            AffineBinaryOpKind.Add: Expr.__add__,
            AffineBinaryOpKind.Mul: Expr.__mul__,
            AffineBinaryOpKind.Mod: self.mod,
            AffineBinaryOpKind.FloorDiv: self.floordiv,
            AffineBinaryOpKind.CeilDiv: self.ceildiv,
        }
        return evaluated(e, dims, symbols, Expr.of, operations)

    def minimum(self, a: Expr, b: Expr) -> Expr:
        return self._extremum("min", a, b)

    def maximum(self, a: Expr, b: Expr) -> Expr:
        return self._extremum("max", a, b)

    def _extremum(self, name: str, a: Expr, b: Expr) -> Expr:
        low, high = (a - b).range()
        smaller, larger = (a, b) if name == "min" else (b, a)
        if high is not None and high <= 0:
            return smaller
        if low is not None and low >= 0:
            return larger
        a, b = sorted((a, b), key=lambda e: e.sort_key)
        bounds = [x.range() for x in (a, b)]
        lows = [low for low, _ in bounds if low is not None]
        highs = [high for _, high in bounds if high is not None]
        if name == "max":
            lower, upper = max(lows, default=None), max(highs) if len(highs) == 2 else None
        else:
            lower, upper = min(lows) if len(lows) == 2 else None, min(highs, default=None)
        return self.apply(name, a, b, lower=lower, upper=upper)


@frozen
class Expr:
    """A polynomial in symbols with integer coefficients. Immutable, hashable, in normal form."""

    terms: Mapping[Monomial, int]

    def __post_init__(self) -> None:
        kept = {m: k for m, k in self.terms.items() if k}
        object.__setattr__(self, "terms", kept)

    @classmethod
    def of(cls, value: int | Expr) -> Expr:
        return value if isinstance(value, Expr) else cls({(): value})

    @classmethod
    def symbol(cls, symbol: Symbol) -> Expr:
        return cls({(symbol,): 1})

    # What it is.
    @property
    def constant(self) -> int | None:
        """Its value if it is a known number."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    @property
    def offset(self) -> int:
        """Its constant term."""
        return self.terms.get((), 0)

    def as_symbol(self) -> Symbol | None:
        """The symbol that it is, if it is nothing but one symbol."""
        if len(self.terms) == 1:
            ((monomial, k),) = self.terms.items()
            if k == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols that stand in it."""
        return frozenset(s for m in self.terms for s in m)

    @cached_property
    def atoms(self) -> frozenset[Symbol]:
        """Everything that it depends on, through floor divisions and unknown values too."""
        return self.symbols.union(*(s.atoms for s in self.symbols))

    def depends_on(self, symbol: Symbol) -> bool:
        return symbol in self.atoms

    @cached_property
    def size(self) -> int:
        """How much there is of it: the factors of its terms, and the terms."""
        return len(self.terms) + sum(map(len, self.terms))

    def coefficient(self, symbol: Symbol) -> Expr:
        """The factor of ``symbol`` to the first power: e = coefficient * symbol + rest."""
        found: dict[Monomial, int] = {}
        for monomial, k in self.terms.items():
            if symbol in monomial:
                i = monomial.index(symbol)
                found[monomial[:i] + monomial[i + 1 :]] = k
        return Expr(found)

    def step(self, symbol: Symbol) -> Expr | None:
        """Change per unit of ``symbol`` if that is the same everywhere, else None."""
        step = self.coefficient(symbol)
        hidden = any(s is not symbol and symbol in s.atoms for s in self.symbols)
        return None if hidden or step.depends_on(symbol) else step

    def without(self, symbol: Symbol) -> Expr:
        """Its terms in which ``symbol`` does not stand."""
        return Expr({m: k for m, k in self.terms.items() if symbol not in m})

    def substitute(self, values: Mapping[Symbol, Expr]) -> Expr:
        """With symbols replaced by expressions, not inside of floor divisions and the like."""
        result = Expr({})
        for monomial, k in self.terms.items():
            term = Expr.of(k)
            for s in monomial:
                term = term * values.get(s, Expr.symbol(s))
            result = result + term
        return result

    def range(self) -> tuple[int | None, int | None]:
        """Inclusive bounds from the bounds of its symbols; None where unbounded."""
        return bounds(self.terms.items())

    @property
    def is_nonnegative(self) -> bool:
        low, _ = self.range()
        return low is not None and low >= 0

    @property
    def sort_key(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        return tuple(sorted((tuple(s.serial for s in m), k) for m, k in self.terms.items()))

    # Arithmetic.
    def __add__(self, other: int | Expr) -> Expr:
        terms = dict(self.terms)
        for m, k in Expr.of(other).terms.items():
            terms[m] = terms.get(m, 0) + k
        return Expr(terms)

    def __neg__(self) -> Expr:
        return Expr({m: -k for m, k in self.terms.items()})

    def __sub__(self, other: int | Expr) -> Expr:
        return self + -Expr.of(other)

    def __mul__(self, other: int | Expr) -> Expr:
        terms: dict[Monomial, int] = {}
        for m, k in self.terms.items():
            for n, j in Expr.of(other).terms.items():
                product = tuple(sorted(m + n, key=lambda s: s.serial))
                terms[product] = terms.get(product, 0) + k * j
        return Expr(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Expr:
        return Expr.of(other) - self

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __str__(self) -> str:
        ordered = sorted(
            self.terms.items(), key=lambda item: (not item[0], tuple(s.serial for s in item[0]))
        )
        text = ""
        for monomial, k in ordered:
            product = "*".join(s.name for s in monomial)
            size = str(abs(k)) if not product else f"{abs(k)}*{product}" if abs(k) != 1 else product
            sign = ("-" if k < 0 else "") if not text else (" - " if k < 0 else " + ")
            text += sign + size
        return text or "0"

    __repr__ = __str__


def bounds(terms: Iterable[tuple[Monomial, int]]) -> tuple[int | None, int | None]:
    """Inclusive bounds of a sum of products with their factors, from the bounds of their symbols; None: unbounded."""
    low: int | None = 0
    high: int | None = 0
    for monomial, k in terms:
        if not k:
            continue
        lo, hi = _monomial_range(monomial)
        if k < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + k * lo
        high = None if high is None or hi is None else high + k * hi
    return low, high


def _monomial_range(monomial: Monomial) -> tuple[int | None, int | None]:
    """Bounds of a product of symbols; exact for up to one, and for products of nonnegatives."""
    if len(monomial) == 1:
        return monomial[0].lower, monomial[0].upper
    low, high = 1, 1
    for s in monomial:
        if s.lower is None or s.lower < 0:
            return None, None
        low *= s.lower
        high = None if high is None or s.upper is None else high * s.upper
    return low, high


def _is_apply(symbol: Symbol, operator: str) -> bool:
    return symbol.kind is Kind.APPLY and isinstance(symbol.key, tuple) and symbol.key[0] == operator


def _nonnegative(*exprs: Expr) -> bool:
    return all(e.is_nonnegative for e in exprs)
