"""Reading text: whatever it is, it parses or gives a diagnostic; never a traceback, never a hang."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.calls import calls
from tests.draws import fresh_seed
from tilewright.diagnostics import CompileError, TilewrightError
from tilewright.dialects import make_context, own_dialects
from tilewright.dialects.text import (
    SourceText,
    parse_errors,
    parse_module,
    print_module,
    verify_module,
)

PROGRAM = (Path(__file__).parent / "programs" / "gemm.mlir").read_text()


def test_program_round_trips() -> None:
    module = parse_module(PROGRAM, "gemm.mlir", strict=True)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    generic = print_module(module, generic=True)
    assert print_module(parse_module(generic)) == text
    numbered = print_module(module, renumber=True)
    assert print_module(parse_module(numbered), renumber=True) == numbered


def attempt(text: str) -> str | None:
    """The message of the diagnostic, None if the text is legal."""
    try:
        parse_module(text, "cut.mlir")
    except TilewrightError as error:
        assert error.message
        assert str(error).startswith(("cut.mlir:", "error:"))
        return error.message
    return None


def test_text_cut_at_every_line() -> None:
    lines = PROGRAM.splitlines(keepends=True)
    legal = [count for count in range(len(lines)) if attempt("".join(lines[:count])) is None]
    # Aliases without an op are an empty module; the module itself is legal only when closed.
    aliases = next(n for n, line in enumerate(lines) if line.startswith("module"))
    assert legal == list(range(aliases + 1))
    assert attempt(PROGRAM) is None


def test_text_cut_anywhere() -> None:
    body = PROGRAM[PROGRAM.index("#map_a") :]
    aliases = body.index("module @gemm")
    for end in range(fresh_seed() % 31, len(body) - 8, 31):
        message = attempt(body[:end])
        assert message is not None or end <= aliases


def test_text_with_a_line_missing() -> None:
    lines = PROGRAM.splitlines(keepends=True)
    for missing in range(len(lines)):
        attempt("".join(lines[:missing] + lines[missing + 1 :]))


def test_text_with_a_token_changed() -> None:
    random_source = random.Random(fresh_seed())
    tokens = [
        "<",
        ">",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "%x",
        "#y",
        "!z",
        "0x",
        "-1",
        "->",
        '"',
        "@",
        "$",
    ]
    for _ in range(150):
        at = random_source.randrange(len(PROGRAM))
        length = random_source.randrange(3)
        attempt(PROGRAM[:at] + random_source.choice(tokens) + PROGRAM[at + length :])


def test_error_points_into_the_text() -> None:
    broken = PROGRAM.replace(
        "%c0, %n] : memref<1024x1024xf16> ->", "%c0, %nn] : memref<1024x1024xf16> ->"
    )
    line = next(i for i, text in enumerate(broken.splitlines(), 1) if "%nn" in text)
    with pytest.raises(TilewrightError) as caught:
        parse_module(broken, "broken.mlir")
    report = str(caught.value)
    column = broken.splitlines()[line - 1].index("%nn") + 1
    assert report.startswith(
        f"broken.mlir:{line}:{column}: error: value %nn is used but not defined"
    )
    excerpt = report.splitlines()[1:3]
    assert excerpt[0].endswith(broken.splitlines()[line - 1])
    assert excerpt[1].index("^") - excerpt[0].index("%nn") == 0
    assert excerpt[1].rstrip().endswith("^~~")


def test_end_of_input_is_shown_where_the_text_ends() -> None:
    with pytest.raises(TilewrightError) as caught:
        parse_module("func.func @f() {\n  return\n\n\n", "open.mlir")
    assert caught.value.location is not None
    assert caught.value.location.line == 2


@pytest.mark.parametrize(
    "text",
    ["#", "#a", "#a =", "\x00", "é", '"' * 3, "%", "module {" * 400, "}"],
)
def test_odd_text(text: str) -> None:
    assert attempt(text) is not None


@pytest.mark.parametrize("text", ["", "   \n", "// nothing\n", "#a = 3", "#a = 3\n!b = i32 // b\n"])
def test_text_without_ops_is_an_empty_module(text: str) -> None:
    assert print_module(parse_module(text)) == "module {\n}\n"


def test_every_malformed_alias_is_reported() -> None:
    text = (
        "#a = #xetile.sg_map<wi_layout = [2, 8, 2], wi_data = [1, 2]>\n"
        "#b = #xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 16]>\n"
        "#c = #xetile.tile_attr<order = [0, 1, 2]>\n"
    )
    errors: list[TilewrightError] = []
    with pytest.raises(TilewrightError) as caught:
        parse_module(text, "maps.mlir", errors=errors)
    assert caught.value is errors[0]
    places = [error.location for error in errors]
    assert [place.line for place in places if place is not None] == [1, 3]
    assert "size 2 for wi_layout" in errors[0].message and "size 2 for order" in errors[1].message


@pytest.mark.parametrize(
    "kind",
    [
        "vector<8 x 16 x index>",
        "memref<? x 4 x f32, strided<[4, 1]>>",
        "tensor<4 x? x f32>",
        "!xegpu.tensor_desc<8 x 16x f32>",
        "!xetile.tile<8 x16 xf32>",
        "!xegpu.mem_desc<8 x 16 x i8>",
    ],
)
def test_blanks_may_stand_in_shapes(kind: str) -> None:
    def read(written: str) -> str:
        return print_module(parse_module(f"func.func private @f({written})"))

    assert read(kind) == read(kind.replace(" ", ""))


def test_memory_space_zero_is_none() -> None:
    text = (
        "func.func @f(%a: memref<8xf32, 0>) {\n"
        "  %b = memref.cast %a : memref<8xf32> to memref<?xf32>\n  return\n}\n"
    )
    assert "@f(%a: memref<8xf32>)" in print_module(parse_module(text))


def test_deep_nesting_is_a_diagnostic() -> None:
    assert attempt("#a = " + "[" * 100_000) is not None
    assert attempt('"test.op"() {a = ' + "{a = " * 100_000) is not None


def test_ops_know_where_they_stand() -> None:
    from tilewright.diagnostics import location_of

    module = parse_module(PROGRAM, "gemm.mlir")
    lines = PROGRAM.splitlines()
    mma = next(op for op in module.walk() if op.name == "xetile.tile_mma")
    place = location_of(mma)
    assert place is not None and place.file == "gemm.mlir"
    assert lines[place.line - 1][place.col - 1 :].startswith("xetile.tile_mma")


def test_use_before_definition_is_refused() -> None:
    text = (
        "func.func @f(%a: index) {\n  %x = arith.addi %a, %y : index\n"
        "  %y = arith.addi %a, %a : index\n  return\n}\n"
    )
    assert "used before the op that defines it" in (attempt(text) or "")
    nested = (
        "func.func @f(%a: index) {\n  scf.for %i = %a to %a step %a {\n"
        "    %x = arith.addi %a, %y : index\n  }\n  %y = arith.addi %a, %a : index\n  return\n}\n"
    )
    assert "used before the op that defines it" in (attempt(nested) or "")
    loop = (
        "func.func @f(%a: index) {\n  cf.br ^one\n^two:\n  %x = arith.addi %a, %y : index\n"
        "  return\n^one:\n  %y = arith.addi %a, %a : index\n  cf.br ^two\n}\n"
    )
    assert attempt(loop) is None


@pytest.mark.parametrize("inner", ["%i", "%x"])
def test_what_a_region_defines_stays_inside(inner: str) -> None:
    text = (
        "func.func @f(%c: index) {\n"
        f"  %y = arith.addi {inner}, %c : index\n"
        "  scf.for %i = %c to %c step %c {\n    %x = arith.addi %i, %c : index\n  }\n  return\n}"
    )
    assert "in a region that does not surround its use" in (attempt(text) or "")


def test_cost_is_linear() -> None:
    """Eight times the ops, eight times the work: nothing quadratic."""

    def program(count: int) -> str:
        op = "  %t{0} = xetile.update_tile_offset %t, [{0}, %i] : !xetile.tile<8x16xf16>\n"
        body = "".join(op.format(number) for number in range(count))
        return f"func.func @f(%t: !xetile.tile<8x16xf16>, %i: index) {{\n{body}  return\n}}\n"

    def work(count: int) -> int:
        return calls(lambda: print_module(parse_module(program(count)), renumber=True))

    work(10)  # dialects load once
    small, large = work(200), work(1600)
    assert large < 9 * small


def test_every_dialect_of_ours_is_registered() -> None:
    context = make_context()
    registered = set(context.registered_dialect_names)
    assert {"xetile", "index", "spirv", "gpu", "vector", "memref", "llvm"} <= registered
    for name, factory in own_dialects().items():
        assert factory().name == name


def test_verify_module_without_text() -> None:
    module = parse_module(
        "func.func @f(%a: index) {\n  %x = arith.addi %a, %a : index\n  return\n}\n"
    )
    add = next(op for op in module.walk() if op.name == "arith.addi")
    verify_module(module)
    from xdsl.dialects.builtin import i32

    add.results[0]._type = i32  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(TilewrightError) as caught:
        verify_module(module)
    assert "'arith.addi' op" in caught.value.message


@pytest.mark.parametrize(
    "error, said",
    [
        (KeyError("foo"), "unknown word 'foo'"),
        (ValueError("'foo' is not a valid CombiningKindFlag"), "unknown word 'foo'"),
        (ValueError("no name.", "Use letters."), "no name. Use letters"),
    ],
)
def test_what_a_parser_raises_is_a_sentence(error: Exception, said: str) -> None:
    """These were a bare word, the name of a class, and a pair of texts as Python writes it."""
    with pytest.raises(CompileError) as caught, parse_errors(SourceText("%r = foo", "f.mlir")):
        raise error
    assert caught.value.message == said
