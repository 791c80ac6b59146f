"""A call of a graph over again: its launches, prepared once, at the addresses of other arrays that look the same.

What a launch finds out about each of its arrays it finds out anew for each that lies elsewhere, and results do. A graph
knows how all that it makes looks: only the arrays that it is given are looked at, all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright import knobs
from tilewright.arguments import HOST, Grid, full_grid
from tilewright.frozen import record
from tilewright.runtime.arrays import data_of, likeness
from tilewright.runtime.guards import guard
from tilewright.runtime.launch import Launcher
from tilewright.targets.base import PreparedLaunch

Launch = tuple[Launcher, Any, tuple[Any, ...]]
"""What launched, its grid, and the arrays."""

_LINE = 63
"""An address within a cache line is part of what an array looks like."""


@record
class Step:
    """A launch: where its arrays begin, counted in bytes from one of those of the graph."""

    launch: PreparedLaunch
    grid: Grid
    places: tuple[tuple[str, int], ...]
    bind: Callable[[Grid, list[int]], Callable[[], None]] | None
    """Of a launch that is Bindable."""
    last: tuple[list[int], Callable[[], None] | None] | None = None
    """The addresses of the launch before this one, and what launches on them again, if they were those once before."""

    def __call__(self, at: Mapping[str, int]) -> None:
        values = [at[name] + start for name, start in self.places]
        last = self.last
        if last is None or last[0] != values:
            self.last = values, None
            return self.launch(self.grid, values)
        run = last[1]
        if run is None:
            run = (
                self.bind(self.grid, values)
                if self.bind
                else partial(self.launch, self.grid, values)
            )
            self.last = values, run
        return run()


class Replay:
    """All launches of one plan, for arrays that look like those of the call that it was made from."""

    def __init__(
        self,
        names: Sequence[str],
        given: Sequence[Any],
        made: Mapping[str, tuple[Callable[[], Any], Any]],
        kept: frozenset[str],
        launches: Sequence[tuple[Launch, Sequence[str]]],
    ):
        """`names`, `given`: the inputs. `made`: how each other array is made, and as it was. `kept`: those among them
        that no result shares memory with. `launches`: each with the names of its arrays' memory.

        Raises ValueError where something cannot be told by a look.
        """
        looks = [_look(a) for a in (*given, *(array for _, array in made.values()))]
        self._names = list(names)
        self._check = None
        if all(type(a) is np.ndarray for a in given):
            self._looks = [look for look, _ in looks[: len(given)]]
        else:
            self._check = guard(given)
            if self._check is None:
                raise ValueError("arrays of several kinds, or without a guard")
        starts = dict(zip([*names, *made], [start for _, start in looks], strict=True))
        self._low = {name: start & _LINE for name, start in starts.items()}
        self._made = {name: make for name, (make, _) in made.items()}
        on_host = all(type(a) is np.ndarray or a.device.type == HOST for a in given)
        self._kept = kept if on_host else frozenset[str]()
        self._idle: list[dict[str, Any]] = []
        self._under = knobs.current()
        self._epochs = list({id(one): (one, one.epoch()) for (one, *_), _ in launches}.values())
        self._steps: list[Step] = []
        for (launcher, grid, arrays), memory in launches:
            prepared = launcher.prepared(arrays)
            if prepared is None:
                raise ValueError("a launch that cannot be prepared")
            own = [_look(a)[1] for a in arrays]
            places = tuple((n, p - starts[n]) for n, p in zip(memory, own, strict=True))
            bind = getattr(prepared, "bind", None)
            self._steps.append(Step(prepared, full_grid(grid), places, bind))

    def __call__(self, given: Sequence[Any]) -> dict[str, Any] | None:
        """The arrays that are made of these, by name; None where they do not look as those did."""
        if self._under is not knobs.current() or len(given) != len(self._names):
            return None
        if self._check is None:
            looks = [likeness(a) for a in given]
            if any(a is None or a[0] != b for a, b in zip(looks, self._looks, strict=True)):
                return None
            starts = [look[1] for look in looks if look is not None]
        else:
            if not self._check(*given):
                return None
            starts = [a.data_ptr() for a in given]
        at = dict(zip(self._names, starts, strict=True))
        if any(launcher.epoch() is not epoch for launcher, epoch in self._epochs):
            return None
        try:
            memory = dict(self._idle.pop())
        except IndexError:
            memory = {}
        for name, make in self._made.items():
            array = memory.get(name)
            if array is None:
                array = memory[name] = make()
            at[name] = data_of(array) if self._check is None else array.data_ptr()
        if any(start & _LINE != self._low[name] for name, start in at.items()):
            return None
        for step in self._steps:
            step(at)
        self._idle[:] = [{name: memory[name] for name in self._kept}]
        return memory


def _look(array: Any) -> tuple[Any, int]:
    look = likeness(array)
    if look is None:
        raise ValueError("an array that is described each time")
    return look
