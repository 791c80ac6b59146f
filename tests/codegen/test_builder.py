"""The builder of the last stage: what it remembers of a block, it does not compute again."""

from xdsl.dialects.builtin import i1
from xdsl.ir import Block

from tilewright.codegen.builder import Builder, index


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
