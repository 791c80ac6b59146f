"""The builder of the last stage: what it remembers of a block, it does not compute again."""

from xdsl.dialects.builtin import i1
from xdsl.ir import Block, OpResult

from tilewright.codegen.builder import Builder, index
from tilewright.dialects import mach


def test_equal_sums_and_products_of_a_block_are_one_value():
    block = Block(arg_types=[index, index, i1])
    b, (x, y, condition) = Builder(block), block.args
    made = b.plus(x, y), b.minus(x, y), b.times(x, 3)
    assert made == (b.plus(x, y), b.minus(x, y), b.times(x, 3))
    assert len({*made, b.plus(y, x), b.times(x, 4)}) == 5
    inside: list[object] = []
    for _ in range(2):
        with b.when(condition):  # the one may run, and the other not
            inside += [b.times(x, y), b.times(x, y)]
    assert inside[0] is inside[1] and inside[2] is inside[3] and inside[0] is not inside[2]
    assert b.times(x, y) not in inside


def test_numbers_and_addresses_stand_around_the_loops_that_make_none_of_their_operands():
    """A division, which a zero ends, stays where it is."""
    block = Block(arg_types=[index, index, i1, mach.ptr])
    b, (x, y, condition, p) = Builder(block), block.args
    b.hoists = True
    with b.loop(0, x) as outer, b.when(condition):
        branch = b.block
        mine = b.times(x, 3)
        with b.loop(0, y) as inner:
            kept, row, both = b.plus(x, y), b.times(outer.iv, x), b.plus(outer.iv, inner.iv)
            address, quotient = b.ptr(p, b.times(row, 4)), b.over(x, 7)
            loop = b.block
        assert (b.plus(x, y), b.times(outer.iv, x)) == (kept, row)
    places = {"mine": mine, "kept": kept, "row": row, "both": both, "at": address, "over": quotient}
    found = {
        name: value.owner.parent for name, value in places.items() if isinstance(value, OpResult)
    }
    assert found == {
        "mine": block, "kept": block, "row": branch, "both": loop, "at": branch, "over": loop,
    }  # fmt: skip
