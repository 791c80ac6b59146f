"""What mlir-opt 22 refuses, Tilewright refuses under `--strict`: legal ops, each with something spoiled.

`ops.txt` has the legal ops: arguments, and the op on them. A number, a type, a hint or an attribute of it is changed.
"""

from __future__ import annotations

import bisect
import random
import re
import subprocess
from pathlib import Path

from tests.draws import fresh_seed
from tests.peer.mlir_opt import TOOL, needs_mlir_opt
from tests.peer.test_programs import EXAMPLES
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module

LAYOUTS = {
    "WORKGROUP": "#xegpu.layout<sg_layout = [2, 2], sg_data = [16, 16], inst_data = [8, 16], order = [1, 0]>",
    "LANES": "#xegpu.layout<lane_layout = [1, 16], lane_data = [1, 1]>",
}
LEGAL = (Path(__file__).parent / "ops.txt").read_text().splitlines()
HINTS = ("cached", "uncached", "streaming", "read_invalidate", "write_back", "write_through")
TYPES = ["f16", "f32", "bf16", "i8", "i32", "i1", "index", "f64", "tf32", "i64", "i16", "f8E4M3FN"]
NUMBERS = (0, 1, 2, 3, 4, 6, 8, 16, 17, 24, 32, 48, 64, 128, -1)
SPOIL = (
    (r"(?<![%\w.])-?\d+(?=\b|x)|(?<=x)\d+(?=x)", NUMBERS),
    (r"(?<=[x \[<(])(f16|f32|bf16|i8|i32|i1|index|f64)\b", TYPES),
    (r"(?<=cache_hint<)\w+", HINTS),
    (r"\b\d+x|, \d+(?=[\],])|\d+, ", ("",)),
    (r", \w+ = (\[[^\]]*\]|\d+)|\w+ = (\[[^\]]*\]|\d+), ", ("",)),
)
"""What is replaced, and by what."""
WIDER = (
    # Lists of attributes and of results may be written so.
    "expected attribute name",
    "expected named operation to have at least",
    # Propagation finds who owned a value before.
    "invalid properties .* for op xegpu.convert_layout",
    # Whole numbers of every width count.
    "'vector.step' op result",
)


READ_AS_OTHERS = ("linalg.",)
"""Ops whose text says in short what others do."""


def function(op: str) -> str:
    arguments, _, body = op.partition(" | ")
    for name, layout in LAYOUTS.items():
        arguments, body = arguments.replace(name, layout), body.replace(name, layout)
    head = f"gpu.module @m {{ gpu.func @f({arguments.strip()}) {{"
    return f"{head} {body} gpu.return }} }}"


def spoiled(text: str, draw: random.Random) -> str:
    """One thing of a function's body replaced; the types of its arguments are mostly left."""
    start = 0 if draw.random() < 0.2 else text.index("{ ", 20)
    for pattern, options in draw.sample(SPOIL, len(SPOIL)):
        if found := list(re.finditer(pattern, text[start:])):
            at = draw.choice(found)
            return text[: start + at.start()] + str(draw.choice(options)) + text[start + at.end() :]
    return text


def verdicts(texts: list[str]) -> list[str | None]:
    """What mlir-opt says against each text; all are parts of one input."""
    assert TOOL is not None
    command = [TOOL, "--split-input-file", "-o", "/dev/null"]
    whole = "".join(f"{text}\n// -----\n" for text in texts)
    done = subprocess.run(command, input=whole, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # one of them crashes it: that is no verdict
        half = len(texts) // 2
        return verdicts(texts[:half]) + verdicts(texts[half:]) if half else ["crashed"]
    starts = [1 + 2 * number for number in range(len(texts))]
    said: list[str | None] = [None] * len(texts)
    for line, error in re.findall(r"<stdin>:(\d+)(?: offset )?:[\d:]+ error: (.*)", done.stderr):
        number = bisect.bisect_right(starts, int(line)) - 1
        said[number] = said[number] or error
    return said


def refused(text: str) -> bool:
    try:
        parse_module(text, strict=True)
    except TilewrightError:
        return True
    return False


@needs_mlir_opt
def test_legal_ops():
    texts = [function(op) for op in LEGAL]
    for text, theirs in zip(texts, verdicts(texts), strict=True):
        assert theirs is None, f"{theirs}\n{text}"
        parse_module(text, strict=True)


def printed(texts: list[str], *flags: str) -> list[str]:
    """What mlir-opt prints of each text."""
    assert TOOL is not None
    whole = "\n// -----\n".join(texts)
    command = [TOOL, "--split-input-file", *flags]
    done = subprocess.run(command, input=whole, capture_output=True, text=True, check=True)
    return done.stdout.split("// -----\n")


@needs_mlir_opt
def test_generic_form():
    """Each reads what the other prints, and as the same op, whose numbers and lists of operands mean the same."""
    texts = [function(op) for op in LEGAL]
    theirs = printed(texts, "--mlir-print-op-generic")
    assert len(theirs) == len(texts)
    ours = [print_module(parse_module(text), generic=True).replace("\n", " ") for text in theirs]
    for text, said in zip(ours, verdicts(ours), strict=True):
        assert said is None, f"{said}\n{text}"
    for text, one, other in zip(texts, printed(ours), printed(texts), strict=True):
        assert one == other or any(name in text for name in READ_AS_OTHERS), text


@needs_mlir_opt
def test_what_mlir_refuses():
    draw = random.Random(fresh_seed())
    whole = [function(op) for op in LEGAL]
    texts = [spoiled(draw.choice(whole), draw) for _ in range(2 * EXAMPLES)]
    said = verdicts(texts)
    for text, theirs in zip(texts, said, strict=True):
        if theirs is not None and not any(re.search(known, theirs) for known in WIDER):
            assert refused(text), f"{theirs}\n{text}"
    assert sum(each is not None for each in said) > len(texts) // 3
