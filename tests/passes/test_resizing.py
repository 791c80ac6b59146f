"""A kernel that was resized is the one that would have been built."""

import re

import pytest
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tests.draws import fresh_rng
from tests.passes.test_planner import Request, arrays, product, rows
from tilewright.dialects.upstream.arith import constant
from tilewright.ops.attention import attention_kernel
from tilewright.passes.resizing import FIRST, NotAffineError, Resizable


@tw.kernel
def halves(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    """Extents of half and twice a size, a mask, and loops inside of a loop."""
    m = tw.program_id(0) * BM
    total = tw.zeros((BM // 2, 2 * BN + 8), tw.f32)
    for n in range(0, X.shape[1], BN):
        for half in range(0, BM, BM // 2):
            x = tw.load_tile(tw.init_tile(X, [m + half, n], (BM // 2, 2 * BN + 8)))
            inside = tw.arange(0, 2 * BN + 8, axis=1, shape=(1, 2 * BN + 8)) + n < X.shape[1]
            total = total + tw.where(inside, x, 0.0)
    tw.store_tile(total, tw.init_tile(Y, [m, 0], (BM // 2, 2 * BN + 8)))


@tw.kernel
def summed(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    """An extent that is a sum of two sizes."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BM + 3 * BN)))
    tw.store_tile(x, tw.init_tile(Y, [m, n], (BM, BM + 3 * BN)))


@tw.kernel
def limited(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    """A kernel that has only one of the sizes large."""
    tw.static_assert(BM * BN <= 1 << 17)
    at = [tw.program_id(0) * BM, tw.program_id(1) * BN]
    tw.store_tile(tw.load_tile(tw.init_tile(X, at, (BM, BN))), tw.init_tile(Y, at, (BM, BN)))


def request_of(kernel):
    if kernel is attention_kernel:
        q, k, v, o = arrays(*4 * [(4, 512, 48)])
        return Request(kernel, q, k, v, o, 0.25, True, False, 48, tw.auto, tw.auto)
    return Request(kernel, *arrays(*([(512, 512)] * (3 if kernel is product else 2))))


def canonical(module: ModuleOp) -> str:
    """The text of a module, whose constants of equal value are one name: builds share them, resizing does not."""
    text, names = str(module), {}
    for name, value in re.findall(r"(%\w+) = arith\.constant (\S+ : index)", text):
        names[name] = f"%<{value}>"
    text = re.sub(r"%\w+", lambda found: names.get(found[0], found[0]), text)
    text = "\n".join(line for line in text.splitlines() if "= arith.constant" not in line)
    order: dict[str, str] = {}
    return re.sub(r"%\w+", lambda found: order.setdefault(found[0], f"%v{len(order)}"), text)


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        *((kernel, told) for kernel in (product, rows, attention_kernel) for told in (False, True)),
        *((halves, True), (summed, True), (limited, False), (limited, True)),
    ],
    ids=lambda given: given if isinstance(given, bool) else given.name,
)
def test_as_if_built(kernel, told):
    """Numbers that are no simple multiples of a size are told by builds at other sizes alone."""
    request, rng = request_of(kernel), fresh_rng()

    def build(sizes):
        return request.build(dict(zip(request.names, sizes, strict=True)))

    resizable = Resizable(build, len(request.names), told)
    for _ in range(6):
        sizes = tuple(int(n) for n in 8 * rng.integers(2, 33, len(request.names)))
        assert canonical(resizable.at(sizes)) == canonical(build(sizes)), sizes
        for op in resizable.module.walk():  # what is asked of it without a module of these sizes
            for value in op.results:
                if (extents := resizable.extents(value)) is not None:
                    assert extents(sizes) == value.type.get_shape()
                if (number := resizable.constant(value)) is not None:
                    assert number(sizes) == (constant(value),)
    assert canonical(resizable.at(FIRST[: len(sizes)])) == canonical(build(FIRST[: len(sizes)]))


@tw.kernel
def grown(X, Y, BM: tw.constexpr = tw.auto):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, 16)))
    for _ in tw.static_range(BM // 16):
        x = x + 1.0
    tw.store_tile(x, tw.init_tile(Y, [m, 0], (BM, 16)))


def test_other_ops_at_other_sizes():
    request = request_of(grown)
    with pytest.raises(NotAffineError):
        Resizable(lambda sizes: request.build({"BM": sizes[0]}), 1, told=True)


def test_a_part_of_a_size_that_is_none():
    request = request_of(halves)
    resizable = Resizable(lambda sizes: request.build({"BM": sizes[0], "BN": sizes[1]}), 2, True)
    with pytest.raises(NotAffineError):
        resizable.at((17, 32))
