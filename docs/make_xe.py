"""Writes what docs/xe.md shows of real output: two inner loops side by side, machine code, a refusal.

python docs/make_xe.py          writes the page's generated parts (machine code only where ocloc is installed)
python docs/make_xe.py --check  exits with 1 when one is not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from tilewright.diagnostics import TilewrightError
from tilewright.targets.xe import offline
from tilewright.tools.compile import compile_source
from tilewright.tools.sources import parse_source

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).parent / "xe.md"
BY_HAND = ROOT / "examples/08_xe_lanes.mlir"
FROM_WORKGROUP = ROOT / "examples/rfc/xegpu_1_1_gemm_prefetch.mlir"
TOO_LARGE = ROOT / "examples/rfc/xegpu_1_3_two_cache_levels.mlir"


def compiled(path: Path) -> Any:
    return compile_source(parse_source(str(path)), [], [], {"target": "xe-pvc"})


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
        compiled(TOO_LARGE)
    except TilewrightError as error:
        yield "```"
        yield str(error).replace(f"{ROOT}/", "")
        yield "```"


PARTS = {"loops": side_by_side, "refusal": refusal, "machine code": machine_code}


def main() -> int:
    text = page = PAGE.read_text()
    for name, make in PARTS.items():
        if name == "machine code" and offline.missing():
            continue
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        body = "\n".join(make())
        text = re.sub(pattern, lambda m, b=body: f"{m.group(1)}{b}\n{m.group(2)}", text, flags=re.S)
    if "--check" in sys.argv[1:]:
        if text != page:
            print(f"{PAGE} is not up to date: python docs/make_xe.py writes it")
        return int(text != page)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
