import copy
from typing import Optional

import pytest

from sporax.mindspore._names.missing import Placeholder


@pytest.fixture
def gone() -> Placeholder:
    return Placeholder("house.gone", "For 'house', there is no 'gone'.")


@pytest.mark.parametrize(
    "use",
    [
        lambda it: it(1, key=2),
        lambda it: it[0],
        lambda it: list(it),
        lambda it: bool(it),
        lambda it: 1 + it,
        lambda it: it @ it,
        lambda it: -it,
        lambda it: it < 3,
        lambda it: float(it),
        lambda it: 3 in it,
    ],
)
def test_a_use_raises(gone: Placeholder, use):
    with pytest.raises(NotImplementedError, match="there is no 'gone'"):
        use(gone)


def test_reading_an_attribute_is_an_attribute_error(gone: Placeholder):
    with pytest.raises(AttributeError, match="there is no 'gone'"):
        _ = gone.part
    assert not hasattr(gone, "part")


def test_what_a_program_says_about_a_name_without_using_it(gone: Placeholder):
    def function(one: Optional[gone], other: gone | None = None, third: int | gone = 1):  # noqa: UP045 - users write it so
        return one, other, third

    assert function(1) == (1, None, 1)
    assert not isinstance(3, gone)
    assert not isinstance(3, (str, gone))
    assert gone in [gone]
    assert gone != 3
    assert copy.copy(gone) is not None


def test_a_derived_class_can_be_made_and_has_no_objects(gone: Placeholder):
    class Derived(gone):
        def method(self):
            return 1

    assert issubclass(Derived, gone)
    assert not issubclass(int, gone)
    with pytest.raises(NotImplementedError, match="there is no 'gone'"):
        Derived()


def test_operators_of_missing_classes_can_be_made_and_raise_when_they_are_called():
    made = Placeholder("mindspore.ops.operations.sparse_ops.FooSet", "no FooSet")(kind="a-b")
    with pytest.raises(NotImplementedError, match="no FooSet"):
        made(1)
    for path in ("mindspore.ops.foo", "mindspore.nn.Foo"):
        with pytest.raises(NotImplementedError, match="none"):
            Placeholder(path, "none")()
