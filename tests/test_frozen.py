"""`@frozen` classes behave as `@dataclass(frozen=True)` ones, a `@record` as a `@dataclass`; fields that
are set are for the type checker to find."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from inspect import signature
from typing import Any

import pytest

from tilewright.frozen import frozen, guarded, record, shared_functions


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


def test_parameters_are_those_of_the_fields_before_any_object_is_made() -> None:
    @frozen
    class Own(Shape):
        depth: int = 3

        def twice(self) -> int:
            return 2 * self.depth

    class Other(Own):
        def __init__(self, only: int):
            super().__init__(only)

    assert [*signature(Other).parameters] == ["only"]
    found = signature(Own).parameters
    assert [*found] == ["rows", "cols", "note", "seen", "depth"]
    assert (found["rows"].annotation, found["depth"].default) == (int, 3)
    assert Own(2) == Own(2, depth=3) and Other(2).twice() == 6


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


@record
class Tally:
    name: str
    counts: list[int] = field(default_factory=list[int])
    total: int = field(default=7, init=False)
    seen: set[int] = field(default_factory=set[int], init=False)
    scale: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        self.total = sum(self.counts) * self.scale


def test_the_first_objects_and_later_ones_are_made_alike() -> None:
    for _ in range(40):
        tally = Tally("a", [1, 2], scale=3)
        assert (tally.total, tally.seen, Tally(name="b").counts) == (9, set(), [])
        assert tally == Tally("a", [1, 2], scale=3) != Tally("a", [1, 2])
        tally.name = "c"
        assert repr(tally) == "Tally(name='c', counts=[1, 2], total=9, seen=set(), scale=3)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tally("a"))


def test_a_subclass_that_is_no_dataclass_is_not_called_after_its_fields_are_set() -> None:
    @frozen
    class Own(Shape):
        pass

    class Later(Own):
        def __post_init__(self) -> None:
            raise AssertionError

    assert [Later(n).rows for n in range(40)] == [*range(40)]


def test_fields_that_are_compared_may_stay_out_of_the_hash() -> None:
    @frozen
    class Constraint:  # as xDSL's, which hold dictionaries
        name: str
        by_type: dict[type, int] = field(hash=False)

    assert len({Constraint("a", {int: 1}), Constraint("a", {int: 1})}) == 1
    assert Constraint("a", {}) != Constraint("a", {int: 1})


@pytest.mark.parametrize("before", [0, 40])
@pytest.mark.parametrize("args, kwargs, what", [
    ((), {}, "name"),
    (("a", [], 3), {}, "positional"),
    (("a",), {"name": "b"}, "multiple values"),
    (("a",), {"total": 3}, "unexpected"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_as_by_any_function(
    before: int, args: tuple[Any, ...], kwargs: dict[str, Any], what: str
) -> None:
    @record
    class Own(Tally):
        pass

    for _ in range(before):
        Own("a")
    with pytest.raises(TypeError, match=rf"Own\.__init__\(\) .*{what}"):
        Own(*args, **kwargs)


def test_a_library_s_classes_keep_their_fields() -> None:
    fields_of = {"__annotations__": {"x": "int"}, "__module__": "xdsl.ir"}
    with shared_functions():
        made: Any = dataclasses.dataclass(frozen=True)(type("Made", (), dict(fields_of)))
        more: Any = dataclasses.dataclass(frozen=True)(type("More", (made,), dict(fields_of)))
        ordered: Any = dataclasses.dataclass(order=True)(type("Ordered", (), dict(fields_of)))
    users: Any = dataclass(frozen=True)(type("Users", (more,), dict(fields_of)))
    assert dataclasses.dataclass is dataclass and ordered(1) < ordered(2)
    first, *_, last = [made(x) for x in range(40)]
    assert {first, made(0)} == {first} and last != first and repr(last) == "Made(x=39)"
    for each in (first, last, more(1), users(1)):
        for name in ("x", "y"):
            with pytest.raises(FrozenInstanceError):
                setattr(each, name, 3)
            with pytest.raises(FrozenInstanceError):
                delattr(each, name)
    with pytest.raises(TypeError, match="frozen"):
        dataclass(type("Changing", (more,), dict(fields_of)))

    class Plain(made):
        pass

    plain = Plain(1)
    plain.y = 2
    del plain.y
    with pytest.raises(FrozenInstanceError):
        plain.x = 3


def test_guarded_classes_say_that_their_fields_stay() -> None:
    @guarded
    class Held:
        rows: int
        cols: int = 4

    for held in (Held(1), *map(Held, range(40))):
        with pytest.raises(FrozenInstanceError, match="'rows'"):
            held.rows = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert replace(Held(1), cols=2) == Held(1, 2)
