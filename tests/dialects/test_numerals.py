"""Constants of scalar and vector types from numbers."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IndexType, VectorType, bf16, f32, i32

from tilewright.dialects.numerals import number_attr


@pytest.mark.parametrize("kind", [f32, bf16, i32, IndexType()], ids=str)
def test_a_number_has_the_type(kind):
    made = number_attr(kind, 1)
    assert made.get_type() == kind and made.value.data == 1


@pytest.mark.parametrize("element", [f32, i32, IndexType()], ids=str)
def test_numbers_of_a_vector(element, rng):
    count = int(rng.integers(2, 9))
    kind = VectorType(element, [count])
    numbers = rng.integers(-99, 99, count).tolist()
    assert [*number_attr(kind, *numbers).get_values()] == numbers
    one = number_attr(kind, numbers[0])
    assert one.is_splat() and one.get_type() == kind and one.get_values()[0] == numbers[0]
