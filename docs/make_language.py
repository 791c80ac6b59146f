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
from collections.abc import Callable
from typing import Any

from generated import DOCS, main

from tilewright import dtypes
from tilewright.lang import (
    compute,
    creation,
    elementwise,
    host,  # noqa: F401  (registers cdiv)
    maps,
    memory,
    parts,
    program,
    promote,
    reductions,
    scans,
    tiles,
    values,
    views,  # noqa: F401  (registers view)
)
from tilewright.lang.registry import FUNCTIONS, describe_signature
from tilewright.lang.syntax import BREAK, LOOP_ELSE, REFUSED, RETURN_IN_LOOP

PAGE = DOCS / "language.md"

HEAD = """\
<!-- Made by docs/make_language.py from the docstrings; edit those. -->

# The tile language

A kernel is a Python function decorated with `@tw.kernel`. It describes the work of one *workgroup*. Python never runs
it: Tilewright compiles it from its source text. Names and numbers that are known before the launch are evaluated at
compile time; the rest becomes a program over whole tiles.

{contents}

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

Shapes need not be multiples of the tile size: elements of a tile that lie outside its array read as padding and are
not written.

## Launching and compiling

| | |
|---|---|
| `kernel[grid](*args)` | runs the kernel for every point of the grid: an int, a tuple of up to three, or a function of constexprs (`lambda BM: tw.cdiv(M, BM)`, or `lambda c: tw.cdiv(M, c.BM)`) |
| arguments | numpy arrays (with the types of `ml_dtypes`), torch tensors, DLPack objects (one without dimensions has one element, `X[0]`); ints (`index`), floats (`f32`), bools (`i1`), numpy scalars (their dtype); passing `None` makes a parameter a compile-time constant |
| `n: tw.i32` | a number of this dtype, whatever kind of number the launch passes; a float never becomes an integer, and an integer that the dtype lacks is refused |
| `P: tw.constexpr` | a compile-time parameter: a number, string, dtype, function, or a tuple of these; the kernel is compiled once per value |
| `P: tw.constexpr = tw.auto` | chosen by the target's planner for the shapes and the machine, or by `tilewright tune` |
| `@tw.autotune(configs=None, key=None, budget=10.0)` | above `@tw.kernel`: constexprs are chosen by measuring, at the first launch with arguments of a new kind |
| `kernel.explain(*args, target=...)` | what the planner would choose for arguments like these: the cheapest choices, their estimated times, and what takes most of them; how programs with fixed tiles are merged on CPUs |
| `kernel.compile(*args, target=...)` | compiles for arguments like these (arrays, or `tw.spec(shape, dtype)`); no device is needed; the result has `.ir`, `.asm`, `.remarks` |
| `tw.prepack(array)` | says that an array does not change: launches on a CPU that pack it keep its panels as long as the result lives; `.nbytes` tells their bytes, `.update()` that elements have changed |
| `kernel.options(...)` | the same kernel with its own `target`, `num_threads`, `num_stages`, `fastmath`, `maps`, `disable` |
| `@tw.kernel(level="subgroup", subgroups=n)` | describes the work of one of n subgroups instead of a workgroup |

Arguments or a grid that do not fit raise `tw.LaunchError`. An invalid kernel raises `tw.CompileError` with the line, a
caret and a hint. In both cases nothing has run.

`fastmath` is on by default. It allows two things: fusing a multiplication and an addition into one rounding (FMA), and
approximate functions (`exp`, `log`, division and the like) within stated error bounds. It does not reorder your
additions and does not assume anything about NaN, infinities or signed zeros: `x != x` finds NaN, and compensated sums
work. With it, `exp` and `exp2` give zero where the result is below 2^-126, the least normal f32; the bounds of all
functions are in [emitter.md](emitter.md#numbers). Reductions and `tile_mma` are free in their order with either setting.

## Python in kernels

- **Assignments**, also to tuples (`a, b = b, a`, `first, *rest = parts`), augmented ones, `:=`; numbers, strings, tuples, lists, f-strings.
- **Elements of arrays**: `n = LENGTHS[i]` and `X[i, j]` are scalars, one number per dimension; they may be offsets and the
  bounds of loops. `Y[i, j] = x` writes one, of the array's dtype: a scalar is converted, but a float never becomes an
  integer; `Y[i, j] += x` reads and writes one (where several programs do, `tw.atomic_rmw` is what adds all up). Where an index is a
  value of integers, the elements are gathered and scattered, in the shape to which the indices broadcast: `X[rows[:, None], columns]`,
  `Y[i] = x`. Outside of the array they read 0 and are not written, like elements of tiles.
- **Operators** on numbers, scalars and values, with Python's meaning: `//` and `%` round down, comparisons chain, `n in (1, 2)` compares with each,
  `n in range(a, b, 2)` with the bounds.
  Dividing an integer scalar by zero ends the program with an error that names the line and the program on the
  reference and cpu targets, and gives an unspecified number on GPUs. In tiles, the elements whose divisor is zero get
  an unspecified number, and nothing fails: choose with `tw.where`, or load divisors with `padding=1` where a tile
  overhangs its array, since the reference target reports every division by zero. The least integer divided by -1 is
  itself on the cpu, as in numpy; the reference target reports it, and on GPUs it is unspecified.
  `and`, `or`, `not` are for scalars and short-circuit; combine masks with `&`, `|`, `^`, `~`.
- **`if`, `elif`, `else`**, `a if c else b`: decided at compile time for constants, at run time for scalars. A name that
  is bound in both branches must have the same type in both. `return` may appear in a branch, but not inside a run-time
  loop.
- **`for i in range(...)`** with 1 to 3 arguments, negative steps too, and **`while`**: run-time loops. A step that is 0 when
  the kernel runs fails as an assertion does. Variables assigned in a loop (values, tiles, tuples of
  them) are carried across iterations and must keep their type. `continue` and `break` are allowed.
- **`for x in (a, b)`**, `tw.static_range`, `zip`, `enumerate` over sequences: unrolled, as are list comprehensions and
  generator expressions, also over `range(...)` of numbers known at compile time. `sum`, `any`, `all`, `min` and `max` of such a
  sequence combine its elements.
- **`x[:, None]`** and **`x[None, :]`**: a row or a column as a column, and as a row. **`x[2:, :32]`**: these rows and
  columns, **`x[0]`**, **`x[:, -1]`** one of them, **`x[0, 3]`** a scalar, by numbers of compile time.
- **Calls** to functions of the language, to other kernels and to plain Python functions, which are inlined. A function
  whose arguments are all known at compile time is simply run. One that calls itself (up to 32 deep) is ended by a
  condition of compile time, such as an extent of a tile that is halved. `len`, `min`, `max`, `abs`, `int`, `float`, `bool`,
  `isinstance`, `print` and `breakpoint` (on the reference target only) mean what they mean in Python.
- **Names from outside**: constants, modules, dtypes, functions, closures, attributes of modules, classes and
  objects. They are read when the kernel is compiled. A launch notices when one of them has changed (a constant, an
  entry of a list, the code of a helper), and compiles the kernel again; a result of `kernel.compile` stays as it is.
  A name that a kernel assigns is its own, as in Python: `counter += 1` does not reach a global.
- **`assert`** is checked at compile time if possible, otherwise at run time. On Intel GPUs nothing stops a program: the launch
  tells of the first that failed when all have ended.

Not supported, and what to write instead:

"""

TYPES = """\
## Types

A **value** holds the elements of a tile, or one scalar; it has `x.dtype`, `x.shape`, `x.to(dtype)` and `x.item()`,
and the functions whose first parameter is `x` as methods: `x.sum(1)` is `tw.sum(x, 1)`. A
**tile** is a region of an array, created by `init_tile`. An **array** has `A.shape`, `A.strides`, `A.ndim`, `A.dtype`. The dtypes are
{dtypes}.

Elementwise operations broadcast as in numpy. The dtype of the result:

{promotion}

"""

GROUPS = (
    ("Program IDs and the grid", program, "program_id num_programs cdiv"),
    ("Tiles", tiles, "init_tile update_tile_offset view alloc_slm"),
    ("Memory", memory, ""),
    ("Creating values", creation, "zeros full arange"),
    ("Elementwise functions", elementwise, ""),
    ("Whole values", compute, ""),
    ("Reductions", reductions, ""),
    ("Running combinations", scans, ""),
    ("Parts of values", parts, ""),
    ("Ownership maps", maps, ""),
    ("Synchronisation and subgroups", program, "barrier subgroup_id num_subgroups named_barrier"),
    (
        "Compile time, checks, printing",
        program,
        "static_range static_assert device_assert device_print",
    ),
)


MAPS = """
Which subgroup owns which part of a tile is chosen by the compiler. To choose it yourself, give `wg_map=tw.wg_map(...)` to
`init_tile`, `load_tile`, `load_gather`, `atomic_rmw`, or to any function of the sections *Creating values*, *Elementwise
functions*, *Whole values* and *Reductions* but `argmax` and `argmin`; `init_tile` also takes `sg_map=tw.sg_map(...)`.
"""


def page() -> str:
    """The whole page, with a table of contents."""
    text = body()
    headings = re.findall(r"^(##+) (.*)$", text, flags=re.MULTILINE)
    contents: list[str] = []
    for depth, title in headings:
        link = f"[{_short(title)}](#{slug(title)})"
        if depth == "##":
            contents.append(f"- {link}")
        else:
            contents[-1] += (
                ": " if contents[-1].endswith(")") and "`" not in contents[-1] else ", "
            ) + link
    return text.replace("{contents}", "\n".join(contents), 1)


def slug(title: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _short(title: str) -> str:
    """A function's name without its parameters."""
    return re.sub(r"^`(?:tw\.)?([\w.]+)\(.*$", r"`\1`", title)


def body() -> str:
    """The page below its contents."""
    parts = [HEAD, "| construct | instead |", "|---|---|"]
    for what, hint in [*dict.fromkeys(REFUSED.values()), BREAK, RETURN_IN_LOOP, LOOP_ELSE]:
        parts.append(f"| {what} | {hint} |")
    names = ", ".join(f"`tw.{dtype}`" for dtype in dtypes.ALL)
    rules = (promote.__doc__ or "").partition("\n\n")[2]
    parts.append("\n" + TYPES.format(dtypes=names, promotion=_markdown(rules)))
    parts.append("### `x.to(dtype, bitcast=False)`\n\n" + _entry(values.Value.to))
    documented: set[str] = set()
    for title, module, names in GROUPS:
        parts.append(f"## {title}\n" + (MAPS if module is maps else ""))
        listed = names.split() or [
            n for n, f in FUNCTIONS.items() if f.__module__ == module.__name__
        ]
        for name in listed:
            documented.add(name)
            function = FUNCTIONS[name]
            parts.append(f"### `{_heading(function)}`\n\n{_entry(function)}")
    missing = set(FUNCTIONS) - documented
    assert not missing, f"no section lists {missing}"
    return "\n".join(parts).rstrip() + "\n"


def _heading(function: Callable[..., Any]) -> str:
    """The signature, without the maps that are told of once (`MAPS`)."""
    text = re.sub(r", (wg|sg)_map=None", "", describe_signature(function))
    return text.replace(", *)", ")")


def _entry(function: object) -> str:
    """A docstring as Markdown, its example as a console block."""
    text = inspect.getdoc(function) or ""
    prose, _, example = text.partition(">>> ")
    block = f"```pycon\n>>> {example.strip()}\n```\n" if example else ""
    return f"{_markdown(prose)}\n\n{block}"


def _markdown(text: str) -> str:
    text = re.sub(r":(?:func|class|meth|mod|data):`~?([^`]+)`", r"`\1`", inspect.cleandoc(text))
    return text.replace("``", "`").strip()


if __name__ == "__main__":
    sys.exit(main({PAGE: page()}))
