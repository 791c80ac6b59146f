"""The texts of a kernel's stages, made when somebody asks for one.

Printing the stages takes as long as lowering through them, and few kernels are looked at: all that is kept of a
kernel, in memory and on disk, is the text that its build began with. Who asks has it lowered once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright.observer import Observer, ignore

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


class Texts(Mapping[str, Any]):
    """Texts by name, each made when somebody asks for it."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]):
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class StageTexts(Mapping[str, str]):
    """The text of every stage by name, first stage first."""

    def __init__(self, source: str, lower: Callable[[ModuleOp, Observer], Any]):
        """`source`: the module before its build, with locations (`source_of`). `lower` runs the build's passes on a
        module, shows it to its second argument at every stage, by the stage's name, and gives what they made."""
        self.source = source
        self._lower = lower

    def lowered(self, stage: Observer = ignore) -> Any:
        """What the passes make of the source once more."""
        from tilewright.dialects.text import parse_module

        return self._lower(parse_module(self.source), stage)

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        texts: dict[str, str] = {}
        self.lowered(printed_into(texts))
        return texts

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            raise KeyError(f"no stage is called {name!r}; there are {', '.join(self._texts)}")
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def printed_into(texts: dict[str, str]) -> Observer:
    """An observer that keeps the text of what it is shown."""

    def stage(name: str, module: ModuleOp) -> None:
        from tilewright.dialects.text import print_module

        texts[name] = print_module(module, readable=True)

    return stage


def source_of(module: ModuleOp) -> str:
    """The text from which `module` can be built once more, places in the user's source included."""
    from tilewright.dialects.text import print_module

    # Not every short form has room for places.
    return print_module(module, generic=True, locations=True)
