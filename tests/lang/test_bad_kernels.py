"""Kernels that make no sense: each gives one located report, never a traceback or wrong code."""

# ruff: noqa: UP031, B007, B015, B018, F821, F823, F841, RUF059, RUF100, SIM115
import math

import numpy as np
import pytest

import tilewright as tw
from tests.lang.reference import ir, refused
from tilewright import knobs

KERNELS = {}


def bad(message, caret=None):
    """Registers a kernel with what its report says, and the text under the caret."""

    def register(function):
        KERNELS[function.__name__] = (tw.kernel(function), message, caret)
        return function

    return register


@bad("axis is 0, 1 or 2, not the constant 'x'", '"x"')
def axis(A):
    tw.program_id("x")


@bad("async_def is an async def, which cannot be compiled", "async")
async def async_def(A):
    tw.store_tile(1, tw.init_tile(A, [0, 0], (1, 1)))


def returns_nothing(x):
    x + 1


@bad("store_tile writes a value, not None (what a function without return gives)")
def stores_what_no_function_returned(A):
    tw.store_tile(returns_nothing(tw.program_id(0)), tw.init_tile(A, [0, 0], (1, 1)))


@bad("hint: a function without return gives None", "returns_nothing(tw.program_id(0)) + 1")
def adds_to_what_no_function_returned(A):
    returns_nothing(tw.program_id(0)) + 1


@bad("hint: make a value of the same shape with tw.full((8, 4), x, dtype), or use another name")
def number_and_tile(A):
    if A.shape[0] > 4:
        x = 1
    else:
        x = tw.zeros((8, 4), tw.f32)
    tw.store_tile(x, tw.init_tile(A, [0, 0], (8, 4)))


@bad(
    "hint: the language has no such thing: values have two dimensions",
    "tw.zeros((4, 8), tw.f32).reshape",
)
def reshaped(A):
    tw.zeros((4, 8), tw.f32).reshape(1, 32)


@bad("hint: a tile is moved with tw.update_tile_offset(tile, [rows, columns])", "t += [8, 0]")
def moved_in_place(A):
    t = tw.init_tile(A, [0, 0], (8, 8))
    t += [8, 0]


@bad("hint: make the extent a tw.constexpr parameter", "(A.shape[0], 8)")
def shared_memory_of_run_time(A):
    tw.alloc_slm((A.shape[0], 8), tw.f32)


@bad("hint: a scattered tile has one vector of offsets into the flattened array", "[i, i]")
def two_vectors_of_offsets(A):
    i = tw.arange(8)
    tw.load_gather(tw.init_tile(A, [i, i]))


@bad("hint: x.to(tw.i32)", "x")
def offsets_that_are_floats(A):
    x = tw.load_tile(tw.init_tile(A, [0, 0], (1, 8)))
    tw.load_gather(tw.init_tile(A, x))


@bad("hint: i8 holds integers from -128 to 127", 'float("-inf")')
def padding_that_integers_lack(A):
    s = tw.alloc_slm((8, 8), tw.i8)
    tw.load_tile(tw.init_tile(s, [0, 0], (8, 8)), padding=float("-inf"))


@bad("hint: tw.tile_mma(a, b) + c broadcasts c", "c")
def row_as_accumulator(A):
    a, c = tw.zeros((8, 8), tw.f32), tw.zeros((1, 8), tw.f32)
    tw.tile_mma(a, a, c)


@bad("hint: the kernel's range hides Python's: give it another name", "range(4)")
def hides_a_builtin(A):
    range = 4
    for i in range(4):
        pass


@bad("hint: axis=None is both", "(0, 1)")
def axis_of_two(A):
    tw.sum(tw.zeros((8, 8), tw.f32), (0, 1))


@bad("hint: tw.max(x, axis) is that of any dtype", '"max"')
def kind_of_any_dtype(A):
    tw.reduction("max", tw.zeros((8, 8), tw.f32), 1)


@bad('hint: an f-string holds what is known at run time: f"{x}"')
def printed_with_percent(A):
    print("x = %f" % A[0, 0])


UNEVEN = "8 elements over 2 subgroups of 3 each in dimension 0"


@bad(UNEVEN, "tw.wg_map([2, 2], [3, 8])")
def map_of_a_load(A):
    tw.load_tile(tw.init_tile(A, [0, 0], (8, 16)), wg_map=tw.wg_map([2, 2], [3, 8]))


@bad("hint: in every dimension sg_data divides the extent")
def map_of_a_tile(A):
    tw.init_tile(A, [0, 0], (8, 16), wg_map=tw.wg_map([2, 2], [3, 8]))


@bad(UNEVEN)
def map_of_a_transpose(A):
    tw.transpose(tw.zeros((16, 8), tw.f32), wg_map=tw.wg_map([2, 2], [3, 8]))


@bad(UNEVEN)
def map_of_a_product(A):
    x = tw.zeros((8, 8), tw.f32)
    tw.tile_mma(x, x, wg_map=tw.wg_map([2, 2], [3, 8]))


@bad(UNEVEN)
def map_of_a_sum(A):
    tw.sum(tw.zeros((8, 16), tw.f32), 1, wg_map=tw.wg_map([2, 1], [3, 1]))


@bad(UNEVEN)
def map_of_a_broadcast(A):
    tw.broadcast(tw.zeros((8, 1), tw.f32), 1, 16, wg_map=tw.wg_map([2, 2], [3, 8]))


@bad(UNEVEN)
def map_of_a_conversion(A):
    tw.convert_layout(tw.zeros((8, 16), tw.f32), tw.wg_map([2, 2], [3, 8]))


counter = 0


@bad("counter is read before the function binds it", "counter")
def augmented_global(A):
    counter += 1


@bad("counter is read before the function binds it", "counter")
def global_that_is_bound_later(A):
    tw.store_tile(counter, tw.init_tile(A, [0, 0], (1, 1)))
    counter = 1


@bad("hint: a // b of integers is an integer, a / b is not", "[8 / 2, 0]")
def offset_by_true_division(A):
    tw.init_tile(A, [8 / 2, 0], (4, 4))


@bad("hint: one per dimension of the array, outermost first: [m, n]", "0")
def one_number_for_two_offsets(A):
    tw.init_tile(A, 0, (4, 4))


@bad("hint: use tw.f16", "np.float16")
def dtype_of_numpy(A):
    tw.zeros((4, 4), np.float16)


@bad("hint: store tw.transpose(value)", "tw.sum(x, 1)")
def column_to_a_row(A):
    x = tw.load_tile(tw.init_tile(A, [0, 0], (4, 4)))
    tw.store_tile(tw.sum(x, 1), tw.init_tile(A, [0, 0], (1, 4)))


@bad("hint: x.item() is the only element of a value", "tw.sum(x, None) > 1")
def loop_on_the_only_element(A):
    x = tw.load_tile(tw.init_tile(A, [0, 0], (4, 4)))
    while tw.sum(x, None) > 1:
        x = x * 0.5


@bad("too many positional arguments", None)
def load_of_an_array(A):
    tw.load_tile(A, [0, 0], (4, 4))


@bad("a loop over 2-D array of f32", "A")
def loop_over_array(A):
    for row in A:
        pass


@bad("+ does not combine 2-D array of f32 and the constant 1", "A + 1")
def arithmetic_on_array(A):
    A + 1


@bad("2-D array of f32 is neither true nor false", "A")
def array_as_condition(A):
    if A:
        pass


@bad("4x4 tile of f32 is neither true nor false", "t")
def tile_in_and(A):
    t = tw.init_tile(A, [0, 0], (4, 4))
    x = 1 and t and 2


@bad("a condition must be a scalar", "x > 0")
def choice_by_tile(A):
    x = tw.zeros((4, 4), tw.f32)
    x if x > 0 else 0


@bad("and on 4x4 value of i1", "x > 0")
def and_of_masks(A):
    x = tw.zeros((4, 4), tw.f32)
    x > 0 and x < 1


@bad("a chained comparison of tiles", "0 < x < 1")
def chained_tiles(A):
    x = tw.zeros((4, 4), tw.f32)
    0 < x < 1


@bad("TypeError: can only concatenate str", '"s" + 1')
def python_type_error(A):
    "s" + 1


@bad("IndexError: tuple index out of range", "A.shape[5]")
def shape_out_of_range(A):
    A.shape[5]


@bad("/ does not combine run-time index scalar and the constant 'a'", 'tw.program_id(0) / "a"')
def divided_by_text(A):
    tw.program_id(0) / "a"


@bad("in and not in are decided at compile time", "tw.program_id(0) in (1, 2)")
def membership(A):
    tw.program_id(0) in (1, 2)


@bad("print of 2-D array of f32")
def prints_array(A):
    print(A)


@bad("the kernel returns 2x2 value of f32")
def returns_value(A):
    return tw.zeros((2, 2), tw.f32)


@bad("an integer of 1329 bits is no value of index", "10**400 * tw.program_id(0)")
def huge_index(A):
    10**400 * tw.program_id(0)


@bad("an integer of 1329 bits is no value of f32")
def huge_float(A):
    tw.zeros((4, 4), tw.f32) + 10**400


@bad("which does not fit 64 bits", "[0, 2**63]")
def huge_offset(A):
    tw.init_tile(A, [0, 2**63], (4, 4))


@bad("is shifted by 40", "tw.zeros((4, 4), tw.i32) << 40")
def shift(A):
    tw.zeros((4, 4), tw.i32) << 40


@bad("an offset must be an integer scalar, not 4x4 value of i32")
def vector_in_offsets(A):
    tw.init_tile(A, [tw.zeros((4, 4), tw.i32), 0], (4, 4))


@bad("value must be a scalar, not 4x4 value of f32", "tw.zeros((4, 4), tw.f32)")
def full_of_tile(A):
    tw.full((4, 4), tw.zeros((4, 4), tw.f32), tw.f32)


@bad("t changes its type in this loop: 4x4 tile of f32 before it, 4x8 tile of f32 after")
def tile_changes_shape(A):
    t = tw.init_tile(A, [0, 0], (4, 4))
    for i in range(3):
        tw.load_tile(t)
        t = tw.init_tile(A, [0, 0], (4, 8))


@bad("x differs between the branches: the dtype tw.f32 and the dtype tw.f16")
def dtype_by_condition(A):
    if tw.program_id(0):
        x = tw.f32
    else:
        x = tw.f16
    tw.zeros((4, 4), x)


@bad("the two choices differ: the constant 1 and the constant 'a'")
def choice_of_text(A):
    1 if tw.program_id(0) else "a"


@bad("mask is 1x3 value of i1, the tile is 1x4 scattered tile of f32", "tw.arange(0, 3) < 2")
def mask_of_wrong_shape(A):
    tw.load_gather(tw.init_tile(tw.alloc_slm(4, tw.f32), tw.arange(0, 4)), tw.arange(0, 3) < 2)


@bad("math.floor is called with a value of run time", "math.floor(tw.program_id(0) / 2)")
def floor(A):
    math.floor(tw.program_id(0) / 2)


@bad("kernels have no complex numbers", "3j")
def complex_number(A):
    3j


@bad("the name x is not defined", "x")
def annotated_only(A):
    x: int
    x + 1


@bad("writes 4x4 value of tf32 to a 4x4 tile of f32", "tw.zeros((4, 4), tw.tf32)")
def stores_tf32(A):
    tw.store_tile(tw.zeros((4, 4), tw.tf32), tw.init_tile(A, [0, 0], (4, 4)))


@bad("max expected at least 1 argument", "max()")
def max_of_nothing(A):
    max()


@bad("range takes 1 to 3 arguments, not 4")
def long_range(A):
    for i in range(1, 2, 3, 4):
        pass


@bad("the step of a range is 0", "0")
def zero_step(A):
    for i in range(1, 2, 0):
        pass


@bad("hint: use x // y, x % y", "divmod(tw.program_id(0), 3)")
def both_of_a_division(A):
    a, b = divmod(tw.program_id(0), 3)


@bad("hint: {tw.program_id(0)}; numbers are printed with six digits")
def formatted(A):
    print(f"{tw.program_id(0):3d}")


@bad("FileNotFoundError", 'open("/nope")')
def opens_a_file(A):
    open("/nope")


@pytest.mark.parametrize("name", KERNELS)
def test_report(name):
    kernel, message, caret = KERNELS[name]
    text, under = refused(kernel, np.zeros((8, 8), np.float32))
    assert message in (text if message.startswith("hint: ") else text.splitlines()[0])
    if caret is not None:
        assert under == caret


@tw.kernel
def counts(A, step):
    for i in range(0, 4, step):
        tw.store_tile(i, tw.init_tile(A, [0, 0], (1, 1)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_step_of_zero_when_it_runs_fails_alike(target):
    with pytest.raises(tw.TilewrightError, match="the step of a range is 0"):
        counts.options(target=target)[1](np.zeros((1, 1)), 0)


def odd_but_legal_kernel():
    @tw.kernel
    def legal(A):
        "A docstring."
        x = None
        y: int = 3
        x = tw.program_id(0) is None
        if x is not False or (y := 4) == 5:
            tw.store_tile(0, tw.init_tile(A, [0, 0], (1, 1)))
        (a, [b, c]) = 1, (2, 3)
        a, b = b, a
        z = w = a + c
        for A in ():
            undefined_name()
        tw.static_assert((y, z, w, b) == (4, 5, 5, 1))
        return None

    return legal


@pytest.mark.filterwarnings("ignore:kernel legal stores nothing")
def test_odd_but_legal():
    text = ir(odd_but_legal_kernel(), np.zeros((8, 8), np.float32))
    assert "store_tile" not in text


def test_mistakes_of_the_compiler_are_reported_as_such(monkeypatch):
    from tilewright.lang import arithmetic

    def broken(*args):
        raise KeyError("oops")

    @tw.kernel
    def fine(A):
        tw.program_id(0) * 2

    monkeypatch.setattr(arithmetic, "meet", broken)
    text, under = refused(fine, np.zeros(3))
    assert "the compiler failed here: KeyError" in text and "please report it" in text
    assert under == "tw.program_id(0) * 2"
    with knobs.override(traceback=True), pytest.raises(tw.CompileError) as caught:
        fine.compile(np.zeros(3), target="reference")
    assert isinstance(caught.value.__cause__, KeyError)
