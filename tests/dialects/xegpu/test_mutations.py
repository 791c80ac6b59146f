"""Damaged text gives a diagnostic or a program, never anything else.

Each mutation drops, doubles or swaps tokens, replaces a number by a huge or negative one, or exchanges a
type. Set TILEWRIGHT_TEST_MUTATIONS for more of them; the seed is printed when one fails.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.draws import fresh_seed
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.mlir"))
COUNT = int(os.environ.get("TILEWRIGHT_TEST_MUTATIONS", "120"))
TOKEN = re.compile(r"[%#!@]?[\w.]+|\s+|.", re.DOTALL)
NUMBERS = ("0", "-1", "7", "99999999999999999999999999", "18446744073709551615", "4294967296")
WORDS = (
    "f32",
    "index",
    "i1",
    "vector",
    "tensor_desc",
    "%t",
    "x",
    "<",
    ">",
    "[",
    "}",
    "->",
    '"',
    ":",
)


def one_op_programs(path: Path) -> list[str]:
    """The program cut to its head and a single op each: small texts, so that damage lands on an op."""
    lines = path.read_text().splitlines()
    ops = [i for i, line in enumerate(lines) if re.match(r"\s+(%\S+ = )?xegpu\.", line)]
    texts = ["\n".join(lines)]
    for op in ops:
        end = op + 1
        while end < len(lines) and re.match(r"^\s*(:|\t|into|tensor|vector|uint)", lines[end]):
            end += 1
        # Keep what is before it, so that its operands are defined.
        texts.append("\n".join([*lines[:end], "  return", "}"]))
    return texts


def mutate(text: str, rng: random.Random) -> str:
    tokens = TOKEN.findall(text)
    last = text.rstrip().count("\n")
    # Damage lands near the end most of the time: what precedes only defines operands.
    low = 0 if rng.random() < 0.2 or last < 4 else max(0, len(tokens) - 90)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(low, len(tokens))
        match rng.randrange(6):
            case 0:
                tokens[at] = ""
            case 1:
                tokens[at] = tokens[at] * 2
            case 2:
                other = rng.randrange(low, len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = re.sub(r"\d+", rng.choice(NUMBERS), tokens[at])
            case 4:
                tokens[at] = rng.choice(WORDS)
            case _:
                tokens[at] = rng.choice(tokens)
    return "".join(tokens)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_damaged_programs_are_diagnosed(path: Path):
    seed = fresh_seed()
    rng = random.Random(seed)
    texts = one_op_programs(path)
    accepted = refused = 0
    for number in range(COUNT):
        text = mutate(rng.choice(texts), rng)
        try:
            module = parse_module(text, "mutated.mlir")
            print_module(module)
            accepted += 1
        except TilewrightError as error:
            assert error.message and str(error)
            refused += 1
        except Exception as error:
            pytest.fail(f"seed {seed}, mutation {number}: {type(error).__name__}: {error}\n{text}")
    assert refused > COUNT // 4, (accepted, refused)
