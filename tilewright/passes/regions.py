"""Distances: what access analysis computes from offsets, without looking at any op.

All functions are conservative: None, or an empty set, means that nothing could be proven.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.passes.affine import Expr, Kind, Monomial, Symbol, bounds


def difference(x: Expr, y: Expr, common: Collection[Symbol]) -> tuple[int | None, int | None]:
    """Bounds of x - y where symbols that vary and are not common take independent values."""
    together: dict[Monomial, int] = {}
    apart: list[tuple[Monomial, int]] = []
    for terms, sign in ((x.terms, 1), (y.terms, -1)):
        for m, k in terms.items():
            if all(is_fixed(s, common) for s in m):
                together[m] = together.get(m, 0) + sign * k
            else:
                apart.append((m, sign * k))
    return bounds((*together.items(), *apart))


def is_fixed(symbol: Symbol, common: Collection[Symbol]) -> bool:
    """Whether a symbol has one value while those in `common` have."""
    if symbol.lower is not None and symbol.lower == symbol.upper:
        return True
    varying = {s for s in {symbol, *symbol.atoms} if s.kind in (Kind.PROGRAM_ID, Kind.COUNTER)}
    return all(s in common for s in varying)


def separated(dims: Sequence[tuple[Expr, int]]) -> set[Symbol]:
    """Symbols of which different values mean disjoint boxes, given (offset, size) per dimension.

    Whatever the other symbols are: where one dimension tells two values apart only if some symbol is
    equal, another dimension must have settled that symbol.
    """
    found: set[Symbol] = set()
    while True:
        more = joined(found).union(*(digits(x, size, found) for x, size in dims))
        if more <= found:
            return found
        found |= more


def digits(offset: Expr, size: int, settled: Collection[Symbol] = ()) -> set[Symbol]:
    """Symbols whose difference alone keeps two regions of ``size`` elements apart.

    They stand in the offset like digits of a mixed radix: each moves by at least what all below it
    cover. A symbol that moves by less could make up for a difference below it, which then proves
    nothing. ``settled`` symbols count as equal: where they differ, the regions are apart anyway.
    """
    found: set[Symbol] = set()
    cover: int | None = size
    varying = [s for s in offset.symbols if not (s in settled or is_fixed(s, settled))]
    if any(not offset.coefficient(s).constant for s in varying):
        return set()
    for symbol in sorted(varying, key=lambda s: abs(offset.coefficient(s).constant or 0)):
        c = abs(offset.coefficient(symbol).constant or 0)
        if cover is None or c < cover:
            found = set()
        else:
            found.add(symbol)
        if cover is None or symbol.lower is None or symbol.upper is None:
            cover = None
        else:
            cover += c * (symbol.upper - symbol.lower)
    return found


def joined(found: set[Symbol]) -> set[Symbol]:
    """x, where both x // d and x % d are told apart."""
    parts: dict[tuple[Expr, ...], set[str]] = {}
    for symbol in found:
        if symbol.kind is Kind.APPLY and isinstance(symbol.key, tuple):
            parts.setdefault(symbol.args, set()).add(str(symbol.key[0]))
    whole = (args[0].as_symbol() for args, ops in parts.items() if {"floordiv", "mod"} <= ops)
    return {symbol for symbol in whole if symbol is not None}
