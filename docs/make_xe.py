"""Writes what docs/xe.md and docs/tile-to-instruction.md show of real output.

Two inner loops side by side, the remark and the refusal of maps that do not fit, machine code, a refusal for registers.

python docs/make_xe.py          writes the pages' generated parts (machine code only where ocloc is installed)
python docs/make_xe.py --check  exits with 1 when one is not up to date
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from generated import DOCS, filled, main

from tilewright.diagnostics import TilewrightError
from tilewright.targets.xe import offline
from tilewright.tools.compile import compile_source
from tilewright.tools.sources import parse_source

ROOT = DOCS.parent
BY_HAND = ROOT / "examples/08_xe_lanes.mlir"
FROM_WORKGROUP = ROOT / "examples/rfc/xegpu_1_1_gemm_prefetch.mlir"
TOO_LARGE = ROOT / "examples/rfc/xegpu_1_3_two_cache_levels.mlir"


def compiled(path: Path | str, arguments: tuple[str, ...] = (), **options: Any) -> Any:
    return compile_source(
        parse_source(str(path)), list(arguments), [], {"target": "xe-pvc", **options}
    )


def inner_loop(llvm: str) -> list[str]:
    """The lines of the block with most products, without names, equal neighbours counted."""
    blocks = re.split(r"^(?=[\w.]+:$)", llvm, flags=re.M)
    block = max(blocks, key=lambda text: text.count("@xe_dpas"))
    words = [short(line) for line in block.splitlines()[1:]]
    return [f"{len(list(run)):>3} x {word}" for word, run in groupby(w for w in words if w)]


def short(line: str) -> str:
    """What an instruction does; "" for addresses of private memory, which are no instructions of the machine."""
    if (callee := re.search(r"@(xe_\w+)", line)) is not None:
        return callee.group(1)
    found = re.match(r"\s+(?:%\S+ = )?(\w+)(?: \w+)* (<\d+ x \w+>|i\d+|ptr)?", line)
    if found is None or found.group(1) in ("getelementptr", "br"):
        return ""
    return " ".join(x for x in found.groups() if x)


def side_by_side() -> Iterator[str]:
    hand, derived = (inner_loop(compiled(p).asm["llvm"]) for p in (BY_HAND, FROM_WORKGROUP))
    yield "```"
    yield f"{'written by hand as a lane':<44}lowered from the workgroup's program"
    for left, right in zip_longest(hand, derived, fillvalue=""):
        yield f"{left:<44}{right}".rstrip()
    yield "```"


def machine_code() -> Iterator[str]:
    yield "```"
    yield compiled(FROM_WORKGROUP).asm["report"].rstrip()
    yield "```"


def refusal() -> Iterator[str]:
    try:
        compiled(TOO_LARGE, disable={"retile", "xe-spill"})
    except TilewrightError as error:
        yield "```"
        yield str(error).replace(f"{ROOT}/", "")
        yield "```"


TILE_TO_INSTRUCTION = "tile-to-instruction.md"


def _shown(name: str) -> Iterator[str]:
    """What the compiler says of the program that the page shows under a file's name."""
    page = (DOCS / TILE_TO_INSTRUCTION).read_text()
    program = re.search(rf"^```python\n(# {name}\n.*?)^```", page, flags=re.M | re.S)
    assert program is not None, name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text("import tilewright as tw\n" + program[1].removeprefix(f"# {name}\n"))
        try:
            said = compiled(f"{path}:add", ("f32[64,64]",) * 3).remarks
        except TilewrightError as error:
            said = str(error).splitlines()
    yield "```"
    yield from (line.replace(f"{folder}/", "") for line in said)
    yield "```"


def conflict() -> Iterator[str]:
    yield from _shown("conflict.py")


def not_distributed() -> Iterator[str]:
    yield from _shown("uneven.py")


PARTS = {
    TILE_TO_INSTRUCTION: {"loops": side_by_side, "conflict": conflict, "uneven": not_distributed},
    "xe.md": {"machine code": machine_code, "refusal": refusal},
}


def pages() -> dict[Path, str]:
    """The text of each page, its parts made anew."""
    found: dict[Path, str] = {}
    for name, parts in PARTS.items():
        text = (DOCS / name).read_text()
        for part, make in parts.items():
            if part != "machine code" or not offline.missing():
                text = filled(text, f"<!-- {part} -->\n", "\n".join(make()) + "\n", "<!-- end -->")
        found[DOCS / name] = text
    return found


if __name__ == "__main__":
    sys.exit(main(pages()))
