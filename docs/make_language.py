"""Writes docs/language.md, the reference of the tile language, from the language itself.

    python docs/make_language.py          writes the page
    python docs/make_language.py --check  exits with 1 when the page is not up to date

Every entry is a function's signature and docstring, whose example the tests run
(tests/lang/test_docstrings.py). The prose between them stands here.
"""

# ruff: noqa: E501
from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from tilewright import dtypes
from tilewright.lang import (
    compute,
    creation,
    elementwise,
    host,  # noqa: F401  (registers cdiv)
    maps,
    memory,
    program,
    promote,
    tiles,
    values,
    views,  # noqa: F401  (registers view)
)
from tilewright.lang.registry import FUNCTIONS, describe_signature
from tilewright.lang.syntax import BREAK, LOOP_ELSE, REFUSED, RETURN_IN_LOOP

PAGE = Path(__file__).parent / "language.md"

HEAD = """\
<!-- Made by docs/make_language.py from the docstrings; edit those. -->

# The tile language

A kernel is a Python function, decorated with `@tw.kernel`, that says what one *workgroup* does. It is compiled from
its source text: it is not run by Python. Names and numbers known before the launch are computed while compiling;
the rest becomes a program over whole tiles.

```python
import numpy as np, tilewright as tw

@tw.kernel
def gemm(A, B, C, BM: tw.constexpr = 256, BN: tw.constexpr = 256, BK: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))

gemm[tw.cdiv(M, 256), tw.cdiv(N, 256)](A, B, C)
```

Shapes need not divide: what a tile covers outside of its array reads as padding and is not written.

## Launching and compiling

| | |
|---|---|
| `kernel[grid](*args)` | runs the kernel for every point of the grid: an int, a tuple of up to three, or a function of constexprs (`lambda BM: tw.cdiv(M, BM)`, or `lambda c: tw.cdiv(M, c.BM)`) |
| arguments | numpy arrays (with the types of `ml_dtypes`), torch tensors, DLPack objects; ints (`index`), floats (`f32`), bools (`i1`), numpy scalars (their dtype); `None` makes a parameter one of compile time |
| `P: tw.constexpr` | a parameter of compile time: a number, string, dtype, function, tuple of these; by position or keyword |
| `P: tw.constexpr = tw.auto` | left to the target's planner, which sees the shapes and its machine |
| `kernel.compile(*args, target=...)` | compiles for arguments like these (arrays, or `tw.spec(shape, dtype)`); the result has `.ir`, `.asm`, `.remarks` |
| `kernel.options(...)` | the same kernel with `target`, `num_threads`, `num_stages`, `fastmath`, `maps`, `disable` of its own |
| `@tw.kernel(level="subgroup", subgroups=n)` | the program of one of n subgroups instead of a workgroup's |

What does not fit (number of arguments, dtypes, grid) is a `tw.LaunchError`, a kernel that is not legal a
`tw.CompileError` with the line, a caret and a hint; nothing has run then.

## What of Python a kernel may use

- **Assignments**, also to tuples (`a, b = b, a`), augmented ones, `:=`; numbers, strings, tuples, lists, f-strings.
- **Operators** on numbers, scalars and values, with Python's meaning: `//` and `%` round down, comparisons chain.
  `and`, `or`, `not` decide once and are for scalars (they do not evaluate what is not needed); masks combine with
  `&`, `|`, `^`, `~`.
- **`if`, `elif`, `else`**, `a if c else b`: on constants they choose while compiling, on scalars at run time. A name
  bound in both branches has one type. `return` may stand in a branch, but not inside a loop of run time.
- **`for i in range(...)`** with 1 to 3 arguments, negative steps too, and **`while`**: loops of run time. What a loop
  carries from one iteration to the next (values, tiles, tuples of them) is found by the compiler and has one type in
  every iteration. `continue` and `break` are allowed.
- **`for x in (a, b)`**, `tw.static_range`, `zip`, `enumerate` over sequences: unrolled.
- **Calls** to functions of the language, to other kernels and to plain Python functions, which are inlined. A function
  whose arguments are all known while compiling simply runs. `len`, `min`, `max`, `abs`, `int`, `float`, `bool`,
  `isinstance`, `print` and `breakpoint` (both run on the reference target) mean what they mean in Python.
- **Names from outside**: constants, modules, dtypes, functions, closures. They are read when the kernel is compiled.
- **`assert`** checks at compile time what is known then, the rest at run time.

What the language lacks, and what to write instead:

"""

TYPES = """\
## Types

A **value** holds a tile's elements or one scalar; it has `x.dtype`, `x.shape`, `x.to(dtype)` and `x.item()`. A
**tile** is a place, made by `init_tile`. An **array** has `A.shape`, `A.strides`, `A.ndim`, `A.dtype`. The dtypes are
{dtypes}.

Elementwise operations broadcast as in numpy. Which dtype the result has:

{promotion}

"""

GROUPS = (
    ("Where a program stands", program, "program_id num_programs cdiv"),
    ("Tiles", tiles, "init_tile update_tile_offset view alloc_slm"),
    ("Memory", memory, ""),
    ("Values out of nothing", creation, "zeros full arange"),
    ("Elementwise functions", elementwise, ""),
    ("Whole values", compute, ""),
    ("Ownership maps", maps, ""),
    ("Synchronisation and subgroups", program, "barrier subgroup_id num_subgroups named_barrier"),
    (
        "Compile time, checks, printing",
        program,
        "static_range static_assert device_assert device_print",
    ),
)


def page() -> str:
    """The whole page."""
    parts = [HEAD, "| construct | instead |", "|---|---|"]
    for what, hint in [*dict.fromkeys(REFUSED.values()), BREAK, RETURN_IN_LOOP, LOOP_ELSE]:
        parts.append(f"| {what} | {hint} |")
    names = ", ".join(f"`tw.{dtype}`" for dtype in dtypes.ALL)
    rules = (promote.__doc__ or "").partition("\n\n")[2]
    parts.append("\n" + TYPES.format(dtypes=names, promotion=_markdown(rules)))
    parts.append("### `x.to(dtype)`\n\n" + _entry(values.Value.to))
    documented: set[str] = set()
    for title, module, names in GROUPS:
        parts.append(f"## {title}\n")
        listed = names.split() or [
            n for n, f in FUNCTIONS.items() if f.__module__ == module.__name__
        ]
        for name in listed:
            documented.add(name)
            function = FUNCTIONS[name]
            parts.append(f"### `{describe_signature(function)}`\n\n{_entry(function)}")
    missing = set(FUNCTIONS) - documented
    assert not missing, f"no section lists {missing}"
    return "\n".join(parts).rstrip() + "\n"


def _entry(function: object) -> str:
    """A docstring as Markdown, its example as a console block."""
    text = inspect.getdoc(function) or ""
    prose, _, example = text.partition(">>> ")
    block = f"```pycon\n>>> {example.strip()}\n```\n" if example else ""
    return f"{_markdown(prose)}\n\n{block}"


def _markdown(text: str) -> str:
    text = re.sub(r":(?:func|class|meth|mod|data):`~?([^`]+)`", r"`\1`", inspect.cleandoc(text))
    return text.replace("``", "`").strip()


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        print(f"{PAGE.name} is not up to date: run python docs/make_language.py", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
