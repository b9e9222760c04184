"""Members of classes that are made when they are first used; dataclasses are those of Python's library in all that one can see."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Hashable
from dataclasses import field
from typing import Generic, TypeVar

import pytest

from sporax.base.lazy_members import LazyMembers, add_later, dataclass

T = TypeVar("T")
METHODS = ("__init__", "__repr__", "__eq__", "__hash__")


@dataclass(frozen=True, slots=True)
class Point:
    """A value."""

    x: int
    y: float = 2.0
    names: list = field(default_factory=list, compare=False)
    hidden: int = field(default=7, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    """The same by Python's library."""

    x: int
    y: float = 2.0
    names: list = field(default_factory=list, compare=False)
    hidden: int = field(default=7, repr=False)


@dataclass(frozen=True, slots=True)
class Further(Point):
    """A value with a check of its own."""

    z: int = 0
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.z)


@dataclass
class Open:
    """Changes."""

    size: int = 0


@dataclass(frozen=True)
class Box(Generic[T]):
    """Without slots."""

    item: T


@dataclass(frozen=True, slots=True, eq=False)
class Single:
    """Equal to itself alone."""

    name: str


@dataclass(frozen=True, slots=True, repr=False)
class Quiet:
    """Shows nothing."""

    name: str


@dataclass(slots=True)
class Written:
    """Writes all of it itself."""

    name: str

    def __init__(self):
        self.name = "own"

    def __repr__(self):
        return "own"

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def fresh():
    @dataclass(frozen=True, slots=True)
    class Fresh:
        """Not used yet."""

        x: int = 0

    return Fresh


def test_methods_are_written_when_they_are_used():
    kind = fresh()
    assert all(isinstance(vars(kind)[name], LazyMembers) for name in METHODS)
    assert kind(3).x == 3
    assert not isinstance(vars(kind)["__init__"], LazyMembers)
    assert isinstance(vars(kind)["__eq__"], LazyMembers)
    assert kind(3) == kind(3)
    assert not any(isinstance(vars(kind)[name], LazyMembers) for name in METHODS)


@pytest.mark.parametrize("first", METHODS)
def test_any_of_the_methods_may_be_the_first(first):
    value = fresh()(3)
    used = {"__init__": value, "__repr__": repr(value), "__eq__": value == copy.copy(value), "__hash__": hash(value)}
    assert used[first] in (value, "fresh.<locals>.Fresh(x=3)", True, hash((3,)))


def test_a_value_is_as_that_of_pythons_library():
    ours, theirs = Point(1, names=["a"]), Library(1, names=["a"])
    assert repr(ours) == repr(theirs).replace("Library", "Point") == "Point(x=1, y=2.0, names=['a'])"
    assert hash(ours) == hash(theirs)
    assert ours == Point(1, 2.0, ["b"]) != Point(1, 3.0)
    assert ours != theirs
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "names", "hidden"]
    assert Point.__match_args__ == Library.__match_args__
    assert Point.__slots__ == Library.__slots__
    assert inspect.signature(Point) == inspect.signature(Library)
    assert dataclasses.replace(ours, x=5) == Point(5)
    assert Point(1).names is not Point(1).names
    assert Point.__init__.__qualname__ == "Point.__init__"


def test_wrong_arguments_are_answered_with_the_name_of_the_class():
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) got an unexpected keyword argument 'z'"):
        Point(1, z=3)
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()


def test_frozen_values_stay():
    value = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        value.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del value.x
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.other = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Further(1).x = 3
    assert value.x == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize("value", [Point(1, 3.0, ["a"]), Further(1, z=2), Box("a"), Open(4)])
def test_values_are_copied_and_pickled(value, copied):
    again = copied(value)
    assert type(again) is type(value)
    assert again == value


def test_a_class_may_inherit_and_check_itself():
    value = Further(1, z=4)
    assert value.total == 5
    assert repr(value) == "Further(x=1, y=2.0, names=[], z=4, total=5)"
    assert isinstance(value, Point)
    assert value != Point(1)


def test_values_that_change_have_no_hash():
    value = Open()
    value.size = 3
    assert value == Open(3)
    assert not isinstance(value, Hashable)
    assert Open.__hash__ is None


def test_what_is_not_wanted_is_not_written():
    assert Single("a") != Single("a")
    assert Single.__hash__ is object.__hash__
    assert Quiet.__repr__ is object.__repr__
    assert (Written().name, repr(Written()), Written() == 3, hash(Written())) == ("own", "own", True, 1)


def test_a_member_is_made_once_together_with_its_others():
    calls = []

    def made():
        calls.append(1)
        return {"size": 3, "double": lambda self: 2 * self.size}

    class Some:
        size = LazyMembers(made)
        double = LazyMembers(made)

    class Other(Some):
        pass

    assert Other().double() == 6
    assert Some.size == 3 == vars(Some)["size"]
    assert calls == [1]


def test_what_was_put_in_its_place_stays():
    class Some:
        first = LazyMembers(lambda: {"first": 1, "second": 2})
        second = LazyMembers(lambda: {"first": 1, "second": 2})

    Some.second = 5
    assert (Some.first, Some.second) == (1, 5)


def test_a_class_that_is_there_gets_a_member_later():
    class Some:
        pass

    add_later(Some, "name", lambda: {"name": "made"})
    assert isinstance(vars(Some)["name"], LazyMembers)
    assert Some().name == "made" == vars(Some)["name"]
