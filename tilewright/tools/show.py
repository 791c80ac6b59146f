"""Draw who owns what: every map of a program, and the stages of its compilation side by side.

The output is a page for a browser (OUT.html, self-contained), or the ownership alone as OUT.svg or
OUT.png (the latter needs matplotlib). Without -o the maps are listed in the terminal. MLIR text is drawn
as it stands; a Python kernel is compiled for the arguments given, as `tilewright compile` does.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp, ShapedType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.diagnostics import TilewrightError, ToolMissing, location_of, runs
from tilewright.dialects.text import parse_module
from tilewright.dialects.xegpu.distribution import distribution as xegpu_distribution
from tilewright.dialects.xegpu.layouts import LayoutAttr, SliceAttr, is_ownership
from tilewright.dialects.xegpu.layouts import SgMapAttr as XeGpuSgMapAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile import SgMapAttr, TileType, WgMapAttr
from tilewright.dialects.xetile.distribution import distribution as xetile_distribution
from tilewright.frozen import field, record
from tilewright.targets.base import split_name
from tilewright.tools import ownership
from tilewright.tools.console import err
from tilewright.tools.drawing import Picture, heading, stack
from tilewright.tools.exits import DONE, MissingTool, UsageError
from tilewright.tools.sources import CommandSource, parse_source

EPILOG = """\
examples:
  tilewright show kernel.mlir                      list the maps
  tilewright show kernel.mlir -o kernel.html       pictures and text, for a browser
  tilewright show examples/01_gemm.py:gemm --args 'bf16[512,512]' 'bf16[512,512]' 'f32[512,512]' \\
      --stages -o gemm.html                        with every stage of the compilation
  tilewright show kernel.mlir --stages --target xe-pvc -o kernel.html    the owners at every level of XeGPU
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2430; margin: 2rem; background: #fafafa }}
h1 {{ font-size: 1.4rem }} h2 {{ font-size: 1.1rem; margin-top: 2.2rem }}
.maps {{ display: flex; flex-wrap: wrap; gap: 1.2rem; align-items: flex-start }}
.card {{ background: #fff; border: 1px solid #dfe3ea; border-radius: 8px; padding: 1rem;
  max-width: 100%; overflow: auto }}
.card ul {{ margin: .4rem 0 0; padding-left: 1.2rem; color: #555; font-size: .85rem }}
.stages {{ display: flex; gap: 1rem; overflow-x: auto; align-items: flex-start }}
.stages figure {{ margin: 0; min-width: 36rem; max-width: 60rem }}
figcaption {{ font-weight: 600; margin-bottom: .3rem }}
pre {{ background: #fff; border: 1px solid #dfe3ea; border-radius: 8px; padding: .8rem; overflow: auto;
max-height: 70vh; font: 12px/1.45 ui-monospace, Menlo, Consolas, monospace; margin: 0 }}
</style></head><body><h1>{title}</h1>
{body}
</body></html>
"""


@record
class Owned:
    """A map on a shape, and the places of the program that use it."""

    shape: tuple[int, ...]
    map: ly.Distribution
    text: str
    lines: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Where each kind of op that uses it stands; no line where an op has no place."""

    @property
    def places(self) -> list[str]:
        """``xegpu.dpas, lines 3, 7 to 9`` for every kind of op."""
        return [name + _lines(sorted(lines)) for name, lines in self.lines.items()]

    @property
    def instruction(self) -> tuple[int, ...] | None:
        """The block of one instruction in the dimensions of the tile."""
        inst, sliced = self.map.inst_data, self.map.sliced
        if inst is None:
            return None
        return tuple(extent for dim, extent in enumerate(inst) if dim not in sliced)

    @property
    def layout(self) -> ly.Layout:
        return self.map.over(self.shape)

    @property
    def summary(self) -> str:
        """In one line: parts, sharing, and what a lane holds."""
        tile = self.layout
        size = "x".join(map(str, self.shape))
        words: list[str] = []
        if self.map.sg_layout is not None:
            parts = self.map.parts(self.shape, 0)
            part = "x".join(map(str, parts[0].shape))
            count = f"{len(parts)} parts of {part}" if len(parts) > 1 else f"a part of {part}"
            words.append(f"{tile.subgroups} subgroups with {count} each")
            if (shared := tile.replicas(ly.Axis.SUBGROUP)) > 1:
                words.append(f"each part shared by {shared}")
        if (block := self.instruction) is not None:
            words.append(f"instructions of {'x'.join(map(str, block))}")
        if self.map.lane_layout is not None:
            words.append(f"{tile.lanes} lanes with {tile.registers} elements each")
        return f"{size}: " + "; ".join(words)


def configure(parser: argparse.ArgumentParser) -> None:
    from tilewright.tools.compile import add_kernel_arguments

    parser.add_argument(
        "file",
        help="FILE.mlir, FILE.py:KERNEL, FILE.tgraph (a saved graph), or - for MLIR on standard input",
    )
    add_kernel_arguments(parser)
    parser.add_argument("-o", "--output", metavar="OUT", help="OUT.html, OUT.svg or OUT.png")
    parser.add_argument("--stages", action="store_true", help="also compile, and show every stage")
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu)")


def execute(args: argparse.Namespace) -> int:
    suffix = Path(args.output).suffix.lower() if args.output else ""
    if suffix not in ("", ".html", ".svg", ".png"):
        raise UsageError(f"{args.output}: show writes .html, .svg or .png")
    if args.file.endswith(".tgraph"):
        return _show_graph(args.file, args.output)
    source = parse_source(args.file)
    stages = _stages(source, args) if args.stages or source.is_python else {}
    text = str(stages.get("xetile", "")) if source.is_python else source.read()
    found = collect(parse_module(text, source.name))
    levels = owned_at_levels(stages, args.target) if args.stages else {}
    if not args.output:
        _list(found)
        for level, owned in levels.items():
            print(f"\n{level}:")
            _list(owned)
        return DONE
    if suffix == ".html":
        shown = stages if args.stages else {}
        Path(args.output).write_text(page(source.name, found, shown, levels), encoding="utf-8")
        return DONE
    found += [owned for level in levels.values() for owned in level]
    if not found:
        raise TilewrightError(
            f"{source.name} has no map to draw",
            hint="put a wg_map on a tile or an op, or ask for OUT.html --stages",
        )
    sheet = stack([draw(owned) for owned in found])
    if suffix == ".svg":
        Path(args.output).write_text(sheet.svg(), encoding="utf-8")
        return DONE
    try:
        Path(args.output).write_bytes(sheet.png())
    except ImportError:
        raise MissingTool(
            "drawing a PNG needs matplotlib", hint="pip install 'tilewright[vis]', or ask for .svg"
        ) from None
    return DONE


def _show_graph(path: str, output: str | None) -> int:
    """A saved TiledGraph: its text, or its picture."""
    from tilewright.graph import load
    from tilewright.graph.draw import draw as draw_graph

    if output and output.endswith(".png"):
        raise UsageError(f"{output}: a graph is drawn as .svg or .html")
    graph = load(path)
    if not output:
        print(graph, end="")
        return DONE
    picture = draw_graph(graph)
    if output.endswith(".html"):
        picture = _PAGE.format(title=html.escape(graph.name), body=picture)
    Path(output).write_text(picture, encoding="utf-8")
    return DONE


def collect(module: ModuleOp) -> list[Owned]:
    """Every map of a module with the shape that it distributes, each pair once, in program order."""
    found: dict[tuple[tuple[int, ...], ly.Distribution], Owned] = {}
    for op in module.walk():
        for shape, described, text in _maps_of(op):
            if described.fault(shape) is not None:
                continue
            owned = found.setdefault((shape, described), Owned(shape, described, text))
            where = location_of(op)
            lines = owned.lines.setdefault(op.name, set())
            if where is not None:
                lines.add(where.line)
    return list(found.values())


LEVELS = {
    "xegpu": ("of subgroups", None),
    "xegpu-sg": ("of a subgroup's instructions", "inst"),
    "xegpu-inst": ("of an instruction's lanes", "lane"),
}
"""Stages of xe whose values are distributed: what is drawn, and the layouts that have to be filled in first."""


def owned_at_levels(stages: Mapping[str, str | bytes], target: str) -> dict[str, list[Owned]]:
    """The maps of every level of XeGPU that a compilation went through."""
    from tilewright.passes.xegpu.pipeline import PIPELINE, propagate_layout

    family, chip = split_name(target)
    levels: dict[str, list[Owned]] = {}
    for stage, (title, kind) in LEVELS.items():
        text = stages.get(stage)
        if not isinstance(text, str):
            continue
        module = parse_module(text, stage)
        if kind is not None:
            PIPELINE.alone(
                propagate_layout(kind), module, chip if family == PIPELINE.target and chip else ""
            )
        found = collect(module)
        if found:
            levels[f"{stage}, {title}"] = found
    return levels


def draw(owned: Owned) -> Picture:
    """One map: the subgroups' parts, the blocks of their instructions, and the lanes of the first of these."""
    pictures: list[Picture] = []
    tile, described = owned.layout, owned.map
    if described.sg_layout is not None:
        pictures.append(ownership.subgroups(tile, "subgroups"))
    part, block = described.part_shape(owned.shape), owned.instruction
    if block is not None and block != part:
        pictures.append(ownership.instructions(part, block, "a subgroup's instructions"))
    if described.lane_layout is not None and len(owned.shape) <= 2:
        part = block or part
        rows, columns = (1, *part)[-2:]
        size = "x".join(map(str, part))
        corner = f", corner of {size}" if rows > 16 or columns > 32 else ""
        lanes = described.subgroup_level().over(part)
        whose = "a subgroup" if block is None else "an instruction"
        title = f"lanes and registers of {whose}{corner}"
        pictures.append(ownership.fragments(lanes, title, cell=26, rows=16, columns=32))
    sheet = heading(owned.text)
    if pictures:
        sheet.place(stack(pictures, 8, across=True), 0, sheet.height + 6)
    return sheet


def page(
    title: str,
    found: Sequence[Owned],
    stages: Mapping[str, str | bytes],
    levels: Mapping[str, Sequence[Owned]] | None = None,
) -> str:
    """The page: a card per map, those of every level below, then the stages side by side."""
    none = "<p>No op or tile of this program carries a map: the planner chooses.</p>"
    body = f"<h2>Who owns what</h2>\n<div class='maps'>{_cards(found) or none}</div>\n"
    for level, owned in (levels or {}).items():
        body += f"<h2>{html.escape(level)}</h2>\n<div class='maps'>{_cards(owned)}</div>\n"
    if stages:
        columns = "".join(
            f"<figure><figcaption>{html.escape(name)}</figcaption><pre>{html.escape(text)}</pre></figure>"
            for name, text in stages.items()
            if isinstance(text, str)
        )
        body += f"<h2>Stages</h2>\n<div class='stages'>{columns}</div>"
    return _PAGE.format(title=html.escape(title), body=body)


def _cards(found: Sequence[Owned]) -> str:
    cards: list[str] = []
    for owned in found:
        places = "".join(f"<li>{html.escape(p)}</li>" for p in owned.places)
        cards.append(
            f'<div class="card">{draw(owned).svg()}<div>{html.escape(owned.summary)}</div>'
            f"<ul>{places}</ul></div>"
        )
    return "".join(cards)


def _lines(lines: Sequence[int]) -> str:
    """``, line 4`` or ``, lines 3, 7 to 9``; ascending numbers."""
    ranges = ", ".join(runs(lines))
    return f", line{'s' if len(lines) > 1 else ''} {ranges}" if ranges else ""


def _list(found: Sequence[Owned]) -> None:
    if not found:
        err().print("no op or tile of this program carries a map: the planner chooses")
    for owned in found:
        print(f"{owned.text}\n  {owned.summary}")
        for place in owned.places:
            print(f"    {place}")


def _stages(source: CommandSource, args: argparse.Namespace) -> dict[str, str | bytes]:
    from tilewright.tools.compile import compile_source, stages_of

    stages = stages_of(compile_source(source, args.args, args.set, {"target": args.target}))
    found: dict[str, str | bytes] = {}
    for name in stages:
        with suppress(ToolMissing):  # machine code that only an offline compiler makes
            found[name] = stages[name]
    return found


def _maps_of(op: Operation) -> Iterator[tuple[tuple[int, ...], ly.Distribution, str]]:
    """(shape, map, text) of the maps on an op and on the types of its results."""
    for value in op.results:
        if isinstance(value.type, TileType) and not value.type.scattered:
            wg, sg = value.type.wg_map, value.type.sg_map
            described = xetile_distribution(wg, sg)
            if described is not None:
                yield value.type.get_shape(), described, _text(*(a for a in (wg, sg) if a))
        elif isinstance(value.type, TensorDescType) and value.type.ownership is not None:
            attribute = value.type.ownership
            yield value.type.get_shape(), xegpu_distribution(attribute), _text(attribute)
    named: dict[str, Any] = {**op.properties, **op.attributes}
    for name, attribute in named.items():
        shape = _shape(_subject(op, name))
        if shape is None:
            continue
        if isinstance(attribute, (WgMapAttr, SgMapAttr)):
            wg = attribute if isinstance(attribute, WgMapAttr) else None
            sg = attribute if isinstance(attribute, SgMapAttr) else None
            described = xetile_distribution(wg, sg)
            if described is not None:
                yield shape, described, _text(attribute)
        elif is_ownership(attribute):
            assert isinstance(attribute, (LayoutAttr, SliceAttr, XeGpuSgMapAttr))
            yield shape, xegpu_distribution(attribute), _text(attribute)


def _subject(op: Operation, name: str) -> SSAValue | None:
    """The value that an attribute of this name speaks of."""
    values: Sequence[SSAValue] = op.operands
    last = name.rpartition("_")[2]
    if name.startswith("layout_operand_") and last.isdigit():
        return values[int(last)] if int(last) < len(values) else None
    if last in ("a", "b") and len(values) > 1:
        return values["ab".index(last)]
    if last == "source" or name == "input_layout":
        return values[0] if values else None
    return op.results[0] if op.results else (values[0] if values else None)


def _shape(value: SSAValue | None) -> tuple[int, ...] | None:
    if value is None or not isinstance(value.type, ShapedType):
        return None
    shape = tuple(value.type.get_shape())
    return shape if shape and min(shape) > 0 else None


def _text(*attributes: Attribute) -> str:
    """Maps as they are written, without the dialect's name."""
    return ", ".join(str(a).removeprefix("#xetile.").removeprefix("#xegpu.") for a in attributes)
