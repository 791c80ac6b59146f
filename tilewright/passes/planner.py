"""Chooses what is left to the machine: the constexprs of a kernel (``tw.auto``), the tiles of a graph.

Choices are found by descent, one value at a time, or one doubled while another is halved; what a choice costs is an
estimate of the time of the whole launch (`launch_cost`), read from the kernel's IR at these sizes, which is resized,
not built, for most. :func:`choose` guarantees values for which the kernel is legal, or an error that says why none is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations, product
from math import inf
from operator import itemgetter
from threading import Lock
from typing import Any, Protocol, TypeVar

from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import CompileError, Note, TilewrightError, UnsupportedError
from tilewright.passes.launch_cost import Choice, Program, costed
from tilewright.passes.resizing import NotAffineError, Resizable
from tilewright.passes.structure import Structure
from tilewright.uarch.base import GENERIC, Rates
from tilewright.uarch.products import ProductModel

CANDIDATES = (16, 32, 64, 128, 256)
"""Values that are tried for every constexpr; tiles of these extents fit every machine's panels."""

MIDDLE = 64
"""What costs nothing stays there."""

STARTS = (64, 16, 256)
"""Of all names whose values cost anything, each with each; the descent begins at the cheapest."""

PAIRS = 2
"""So many names are not descended along, one after the other, where many kernels that are not to be lie between others:
all choices are costed whose values are possible one by one."""

WORTH = 2
"""A descent begins where costs are at most so many times those of the cheapest start."""

FAR = 1.3
"""What costs so many times as much as the best is on the wrong side of it: so does what lies beyond."""

NEAR = 2
"""Values up and down from the best one that a search tries in all places at once."""
MOST_PLACES = 3
"""With more, all combinations would be too many: a search has none, and a descent begins where all values are alike."""
PLAIN = (16, 32, 64, 128, 256, 512)
"""Sizes that a person would try."""

T = TypeVar("T")


def descend(
    start: tuple[T, ...],
    ways: Sequence[Sequence[T]],
    cost: Callable[[tuple[T, ...]], float],
    ordered: bool = False,
) -> tuple[tuple[T, ...], float]:
    """From a choice to one that no other value of one place makes cheaper, and its cost.

    `ways`: the values of each place. `cost` may be asked for one choice several times; inf is a choice that cannot be.
    A place of which neither the first value nor the last costs anything else is let be. `ordered`: so are the values,
    and those beyond two in a row that cost `FAR` times as much are not tried.
    """

    def other(i: int, value: T) -> tuple[T, ...]:
        return (*best[:i], value, *best[i + 1 :])

    best, least = start, cost(start)
    improved = True
    while improved:
        improved = False
        for i in reversed(range(len(best))):
            if all(cost(other(i, value)) == least < inf for value in (ways[i][0], ways[i][-1])):
                continue
            at = ways[i].index(best[i]) if ordered and best[i] in ways[i] else 0
            for values in (ways[i][at:], ways[i][:at][::-1]):
                far = 0
                for value in values:
                    new = other(i, value)
                    if new != best and (now := cost(new)) < least * 0.999:
                        best, least, improved = new, now, True
                    far = far + 1 if least * FAR < cost(new) < inf else 0
                    if ordered and far == 2:
                        break
    return best, least


def _of_another_aspect(
    choice: tuple[int, ...], ways: Sequence[Sequence[int]]
) -> Iterator[tuple[int, ...]]:
    """Tiles of as many elements: one extent is doubled and another halved. Extents that limit one another (memory,
    programs for all cores) keep a descent along each of them where it is."""
    for i, j in permutations(range(len(choice)), 2):
        other = list(choice)
        other[i], other[j] = 2 * choice[i], choice[j] // 2
        if other[i] in ways[i] and other[j] in ways[j]:
            yield tuple(other)


def _around(best: tuple[int, ...], values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Choices near the best one, and of the sizes that a person would try."""
    if len(best) > MOST_PLACES:
        return
    near = [values[max(0, (i := values.index(v)) - NEAR) : i + NEAR + 1] for v in best]
    yield from product(*near)
    yield from product([v for v in values if v in PLAIN], repeat=len(best))


class Request(Protocol):
    """What has to be chosen (`tilewright.lang.choosing.AutoRequest`)."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def given(self) -> Mapping[str, Any]:
        """The other constexprs."""
        ...

    @property
    def arguments(self) -> tuple[Any, ...]: ...

    @property
    def build(self) -> Callable[[Mapping[str, Any]], ModuleOp]: ...

    @property
    def memory(self) -> dict[str, Any]:
        """What a target found out about the kernel for arguments of these types, whatever their shapes."""
        ...

    @property
    def spare(self) -> Callable[[Mapping[str, Any], ModuleOp], None]:
        """Hands back what `build` made last, for these values, as it was made: what is chosen compiles it."""
        ...


def choose(request: Request, rates: Rates = GENERIC) -> dict[str, int]:
    """A value for every name of the request: the cheapest of :func:`choices`."""
    return choices(request, rates)[0].values


def choices(
    request: Request,
    rates: Rates = GENERIC,
    candidates: Sequence[int] = CANDIDATES,
    rated: Callable[[ModuleOp], Rates] | None = None,
    model: ProductModel | None = None,
    every: bool = False,
    pairs: int = PAIRS,
    alike: float = 0.0,
    sizes: Sequence[int] = STARTS,
) -> list[Choice]:
    """What was tried on the way to the cheapest choice, by descent (see above); the cheapest first, and one of those
    that cost the same. `every`: those that a search might try besides (`_around`), all others of the same cost last.
    Where sizes decide in which order `model`'s sums are added up, the first is of the order that is best on one
    thread, and so are all without `every`.

    `alike`: costs that differ by this part of the least one are the same, for no more is known of them; of these, sizes
    that a person would try are chosen, of which lengths are multiples more often than of others.
    `rated`: by what a kernel is costed, if not by `rates`; it raises UnsupportedError for one that is not to be.
    `model`: what its products cost, if not by rates. `sizes`: see `STARTS`. Raises UnsupportedError when the kernel
    compiles with none of the candidates.
    """
    # The IR depends on types alone, not on shapes.
    memory = "planned" if rated is None else f"planned as {rated.__qualname__}"
    if memory not in request.memory:
        request.memory[memory] = _Programs(request, rates, rated, model)
    programs: _Programs = request.memory[memory]
    made: dict[tuple[int, ...], Choice] = {}
    refused: dict[tuple[int, ...], TilewrightError] = {}

    def known(choice: tuple[int, ...]) -> Choice | None:
        """None: it is refused."""
        if choice not in made and choice not in refused:
            try:
                values = dict(zip(request.names, choice, strict=True))
                made[choice] = costed(values, programs.at(choice), request.arguments)
            except TilewrightError as error:
                refused[choice] = error
        return made.get(choice)

    def cost(choice: tuple[int, ...]) -> float:
        return inf if (found := known(choice)) is None else found.seconds

    ways = [list(candidates)] * len(request.names)
    sizes = [size for size in sizes if size in candidates] or candidates
    middle = (MIDDLE if MIDDLE in candidates else sizes[0],) * len(request.names)

    def search(
        cost: Callable[[tuple[int, ...]], float], start: tuple[int, ...] | None = None
    ) -> tuple[tuple[int, ...], float]:
        """The cheapest by descent; `start`: where it may begin besides."""

        def alone(i: int, values: Sequence[int]) -> list[float]:
            """Costs of other values of one name."""
            return [cost((*middle[:i], value, *middle[i + 1 :])) for value in values]

        starts = [(size,) * len(request.names) for size in sizes]
        if rated is not None and len(request.names) <= pairs:
            possible = [
                [v for v, c in zip(w, alone(i, w), strict=True) if c < inf]
                for i, w in enumerate(ways)
            ]
            starts = list(product(*possible)) or starts
        elif len(request.names) <= MOST_PLACES:
            idle = [
                set(alone(i, (w[0], w[-1]))) == {cost(middle)} != {inf} for i, w in enumerate(ways)
            ]
            starts = list(product(*(middle[:1] if each else sizes for each in idle)))
        starts += [] if start is None else [start]
        # Between tiles of few rows and of many lie dearer ones: one begins at each number of rows.
        first = {start[:1]: start for start in sorted(starts, key=cost, reverse=True)}
        near = [s for s in first.values() if cost(s) <= WORTH * cost(min(starts, key=cost))]
        found = [descend(start, ways, cost, ordered=True) for start in near]
        best, least = min(found, key=itemgetter(1))
        while True:
            other = min(_of_another_aspect(best, ways), key=cost, default=best)
            if not cost(other) < least * 0.999:
                break
            best, least = descend(other, ways, cost, ordered=True)
        for i in range(len(best)):  # what costs nothing stays in the middle
            plain = (*best[:i], MIDDLE, *best[i + 1 :])
            if MIDDLE in candidates and cost(plain) * 0.999 <= least:
                best, least = plain, cost(plain)
        return best, least

    best, least = search(cost)
    if len({each.order for each in made.values()}) > 1:
        # Sums are added up in the order that is best on one thread: bits do not depend on the threads.
        def on_one_thread(choice: tuple[int, ...], idle: bool) -> float:
            found = known(choice)
            return inf if found is None or found.order.idle > idle else found.alone

        def in_order(choice: tuple[int, ...]) -> float:
            found = known(choice)
            return inf if found is None or found.order != kept else found.seconds

        tried = (search(partial(on_one_thread, idle=each)) for each in (False, True))
        start = next(choice for choice, seconds in tried if seconds < inf)
        kept = made[start].order
        if made[best].order != kept:
            best, least = search(in_order, start)
        if not every:
            made = {choice: each for choice, each in made.items() if each.order == kept}
    usual = [c for c in made if made[c].seconds <= least * (1 + alike) and set(c) <= set(PLAIN)]
    if alike and usual:
        best = min(usual, key=cost)
    if not programs.confirm(best):
        return choices(request, rates, candidates, rated, model, every, pairs, alike, sizes)
    if least == inf:
        tried, first = next(iter(refused.items()))
        first_sizes = ", ".join(
            f"{name} = {x}" for name, x in zip(request.names, tried, strict=True)
        )
        none = (
            f"no value of {', '.join(request.names)} among {tuple(candidates)} makes a legal kernel"
        )
        hint = first.hint or "give the constexprs values"
        places = {error.location for error in refused.values()}
        if not isinstance(first, CompileError) or len(places) > 1:
            message = f"{none}; with {first_sizes}: {first.message}"
            raise UnsupportedError(message, location=first.location, hint=hint)
        # The kernel's own error, whatever the sizes are.
        error = UnsupportedError(
            first.message, location=first.location, rule=first.rule, hint=first.hint
        )
        error.notes = (*first.notes, Note(f"{none}; this is with {first_sizes}"))
        raise error
    for other in _around(best, candidates) if every else ():
        known(other)
    order = sorted(made, key=lambda each: (each != best, made[each].seconds))
    firsts: dict[float, tuple[int, ...]] = {}
    distinct = [each for each in order if firsts.setdefault(made[each].seconds, each) == each]
    repeated = sorted(set(order) - set(distinct), key=order.index) if every else []
    return [made[each] for each in (*distinct, *repeated)]


def resizable(request: Request) -> tuple[Lock, Resizable | None]:
    """The kernel from one build, whoever asks; None where it is not the same one at all sizes. There is one module to
    resize: who does holds the lock."""
    lock: Lock = request.memory.setdefault("lock", Lock())
    with lock:
        if "resizable" not in request.memory:
            names = request.names
            request.memory["resizable"] = _resizable(
                lambda sizes: request.build(dict(zip(names, sizes, strict=True))), len(names)
            )
        return lock, request.memory["resizable"]


def _resizable(
    build: Callable[[tuple[int, ...]], ModuleOp], count: int, told: bool = False
) -> Resizable | None:
    try:
        return Resizable(build, count, told)
    except (NotAffineError, TilewrightError):
        return None


class _Programs:
    """A kernel at the choices of its sizes that were asked for: most of them resized, not built.

    Launches of several threads ask for the same kernel, and there is one module to resize: one at a time.
    """

    def __init__(
        self,
        request: Request,
        rates: Rates,
        rated: Callable[[ModuleOp], Rates] | None,
        model: ProductModel | None,
    ):
        self.count = len(request.names)
        self.named = lambda sizes: dict(zip(request.names, sizes, strict=True))
        self.build = lambda sizes: request.build(self.named(sizes))
        self.spare = request.spare
        self.rates, self.rated, self.model = rates, rated, model
        self.known: dict[tuple[int, ...], Program | TilewrightError] = {}
        self.built: set[tuple[int, ...]] = set()
        self.lock, self.resizable = resizable(request)
        with self.lock:
            self._read()

    def _read(self) -> None:
        if self.resizable is not None:
            try:
                products = self.model is not None
                self.structure = Structure(self.resizable.module, products, self.resizable)
            except NotAffineError:
                self.resizable = None

    def at(self, sizes: tuple[int, ...]) -> Program:
        """Raises what building the kernel does, and `rated`."""
        with self.lock:
            if sizes not in self.known:
                self.known[sizes] = self._made(sizes)
            found = self.known[sizes]
        if isinstance(found, TilewrightError):
            raise found
        return found

    def _made(self, sizes: tuple[int, ...]) -> Program | TilewrightError:
        if self.resizable is not None:
            try:
                rates = self.rates if self.rated is None else self.rated(self.resizable.at(sizes))
                return Program(self.structure, rates, self.model, sizes)
            except NotAffineError:
                pass
            except TilewrightError as error:
                return error
        self.built.add(sizes)
        return self._as_built(sizes)[0]

    def _as_built(
        self, sizes: tuple[int, ...]
    ) -> tuple[Program | TilewrightError, ModuleOp | None]:
        try:
            module = self.build(sizes)
            rates = self.rates if self.rated is None else self.rated(module)
            return Program.of(module, rates, self.model), module
        except TilewrightError as error:
            return error, None

    def confirm(self, sizes: tuple[int, ...]) -> bool:
        """Is the kernel at these sizes what it was taken for? If not, from now on it is told by builds what others
        are, and if that was so already, all are built."""
        with self.lock:
            if sizes in self.built or self.resizable is None:
                return sizes in self.built
            self.built.add(sizes)
            taken, (made, module) = self.known.get(sizes), self._as_built(sizes)
            if isinstance(made, TilewrightError) and isinstance(taken, TilewrightError):
                return True
            if isinstance(made, Program) and isinstance(taken, Program) and made.is_like(taken):
                assert module is not None
                self.spare(self.named(sizes), module)
                return True
            self.resizable, told = None, self.resizable.told
            if not told:
                self.resizable = _resizable(self.build, self.count, told=True)
                self._read()
            self.built = {sizes}
            self.known = {sizes: made}
            return False
