"""`@frozen` classes behave as `@dataclass(frozen=True)` ones; fields that are set are for the type checker to find."""

import copy
import pickle
from dataclasses import dataclass, field, fields, replace

import pytest

from tilewright.frozen import frozen


@frozen
class Shape:
    rows: int
    cols: int = 4
    note: str = field(default="", compare=False)
    seen: list[int] = field(default_factory=list[int], compare=False, repr=False)

    @property
    def size(self) -> int:
        return self.rows * self.cols


@dataclass(frozen=True)
class Standard:
    rows: int
    cols: int = 4
    note: str = field(default="", compare=False)
    seen: list[int] = field(default_factory=list[int], compare=False, repr=False)


@frozen
class Named(Shape):
    name: str = "none"

    def __repr__(self) -> str:
        return self.name


@frozen
class Empty:
    pass


@frozen
class Folded:
    """Equal where it says so."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folded) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


def test_values_are_compared_hashed_and_shown_as_the_standard_library_does() -> None:
    for cols, note in ((4, ""), (5, ""), (5, "a")):
        ours, theirs = Shape(3, cols, note), Standard(3, cols, note)
        assert repr(ours) == repr(theirs).replace("Standard", "Shape")
        assert hash(ours) == hash(theirs)
        assert ours == Shape(3, cols, note) and ours != theirs
    assert Shape(3, 4, "a") == Shape(3, 4, "b") != Shape(4, 4)
    assert Shape(1).seen is not Shape(1).seen
    assert [f.name for f in fields(Shape)] == [f.name for f in fields(Standard)]
    assert Empty() == Empty() and hash(Empty()) == hash(()) and repr(Empty()) == "Empty()"


def test_fields_of_a_base_count_and_a_subclass_is_no_base() -> None:
    assert Named(1, name="x") != Named(1, name="y")
    assert Named(1) != Shape(1) and Shape(1) != Named(1)
    assert repr(Named(1, name="x")) == "x" and Named(2, 3).size == 6


def test_methods_that_a_class_has_stay() -> None:
    assert Folded("A") == Folded("a") and len({Folded("A"), Folded("a")}) == 1
    assert repr(Folded("A")) == "Folded(name='A')"


def test_objects_are_copied_changed_and_matched() -> None:
    shape = Shape(2, 3, "n")
    assert replace(shape, cols=7) == Shape(2, 7)
    assert copy.deepcopy(shape) == pickle.loads(pickle.dumps(shape)) == shape
    match shape:
        case Shape(rows, cols):
            assert (rows, cols) == (2, 3)
    with pytest.raises(TypeError, match="rows"):
        Shape()  # pyright: ignore[reportCallIssue]
