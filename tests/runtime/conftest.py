"""A program and a target that the launcher can be watched with: they record what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr
from xdsl.ir import Block, Region

from tilewright import knobs
from tilewright.arguments import ArrayArg
from tilewright.dialects.xetile import InitTileOp, LoadTileOp, StoreTileOp, TileType
from tilewright.runtime.binding import Parameter
from tilewright.runtime.key import Signature, mlir_facts
from tilewright.runtime.launch import Launcher
from tilewright.targets import base


@dataclass
class Built:
    module: ModuleOp
    contiguous: tuple[int, ...] = ()
    expands: bool = False


class RecordingTarget(base.Target):
    """Counts builds and loads; its executables record every launch."""

    name = "recording"

    def __init__(self) -> None:
        self.builds = 0
        self.loads = 0
        self.launches: list[tuple[base.Grid, list[Any]]] = []

    def build(self, module: ModuleOp, options: base.CompileOptions) -> RecordingExecutable:
        self.builds += 1
        return RecordingExecutable(self, str(module))

    def fingerprint(self, options: base.CompileOptions) -> str:
        return "recording 1"

    def load(
        self, artifacts: Mapping[str, bytes], options: base.CompileOptions
    ) -> RecordingExecutable:
        self.loads += 1
        return RecordingExecutable(self, artifacts["text"].decode())


class RecordingExecutable:
    asm: Mapping[str, str] = {}
    remarks: Sequence[str] = ()

    def __init__(self, target: RecordingTarget, text: str):
        self.target, self.text = target, text

    @property
    def ir(self) -> Mapping[str, str]:
        return {"xetile": self.text}

    def launch(self, grid: base.Grid, args: Sequence[Any]) -> None:
        self.target.launches.append((grid, list(args)))

    def prepare(self, args: Sequence[Any]) -> Any:
        arrays = [isinstance(a, ArrayArg) for a in args]

        def launch(grid: base.Grid, values: Sequence[Any]) -> None:
            again = [
                replace(a, pointer=v, owner=None) if is_array else v
                for a, v, is_array in zip(args, values, arrays, strict=True)
            ]
            self.target.launches.append((grid, again))

        return launch

    def artifacts(self) -> Mapping[str, bytes]:
        return {"text": self.text.encode()}


class CopyProgram:
    """``kernel(X, Y, scale=2.0, B: constexpr = 16)``: one tile of X goes to Y."""

    name = "copy"

    def __init__(self, source: str | None = "copy 1"):
        self.source = source
        self.contiguous: tuple[int, ...] = ()
        self.resolved = 0
        """How often it was asked what a call leaves open."""
        self.parameters = (
            Parameter("X"),
            Parameter("Y"),
            Parameter("scale", default=2.0),
            Parameter("B", constexpr=True, default=16),
        )

    def build(
        self, signature: Signature, constexprs: Mapping[str, Any], options: base.CompileOptions
    ) -> Built:
        block = Block(arg_types=[arg.mlir() for arg in signature])
        tile = TileType([constexprs["B"]] * 2, signature[0].dtype.mlir)
        sizes = [16, 16]
        x = InitTileOp(block.args[0], tile, offsets=[0, 0], sizes=sizes, strides=[16, 1])
        load = LoadTileOp(x)
        y = InitTileOp(block.args[1], tile, offsets=[0, 0], sizes=sizes, strides=[16, 1])
        block.add_ops([x, load, y, StoreTileOp(load, y), gpu.ReturnOp([])])
        function = gpu.FuncOp(
            self.name, ([arg.mlir() for arg in signature], []), Region(block), kernel=UnitAttr()
        )
        function.attributes["tilewright.level"] = StringAttr("workgroup")
        function.attributes["tilewright.args"] = mlir_facts(signature)
        module = gpu.ModuleOp(StringAttr(self.name), Region(Block([function])))
        return Built(ModuleOp([module]), self.contiguous)

    def resolve(self, values: Sequence[Any], grid: Any) -> tuple[CopyProgram, Sequence[Any]]:
        self.resolved += 1
        return self, values

    def fingerprint(self) -> str | None:
        return self.source

    def watch(self) -> Callable[[], bool]:
        then = self.source
        return lambda: self.source == then


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> RecordingTarget:
    """A target called cpu, for the time of one test."""
    made = RecordingTarget()
    monkeypatch.setitem(base._loaded, "cpu", made)  # pyright: ignore[reportPrivateUsage]
    return made


@pytest.fixture
def launcher(target: RecordingTarget, tmp_path):
    with knobs.override(cache_dir=tmp_path, target="cpu"):
        yield Launcher(CopyProgram())
