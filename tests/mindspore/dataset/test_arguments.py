"""Constructors that follow from the fields of transforms: signature, checks, attributes, documentation."""

import inspect

import numpy as np
import pytest

from sporax.mindspore.dataset import _checks as check, vision
from sporax.mindspore.dataset._arguments import argument, of, optional, recorded_arguments
from sporax.mindspore.dataset._operations import OneToOne


class Scaled(OneToOne):
    """A number times another.

    Raises:
        SporaxRuntimeError: never.
    """

    factor: float = argument(check.number, "the other number.", low=0)
    offset: int | None = argument(optional(check.integer, 7), "added; 7 for None.", default=None, low=1)

    def _prepare(self) -> None:
        self.both = self.factor, self.offset

    def _one(self, value):
        return value * self.factor + self.offset


class Halved(Scaled):
    """The same, with one more argument and another default."""

    offset: int | None = argument(optional(check.integer, 1), "added; 1 for None.", default=3)
    name_of_it: str = argument(of(str), default="half")


def test_the_signature_has_the_fields_of_the_bases_first():
    parameters = inspect.signature(Scaled).parameters
    assert [(p.name, p.annotation, p.default) for p in parameters.values()] == [
        ("factor", float, inspect.Parameter.empty),
        ("offset", int | None, None),
    ]
    assert list(inspect.signature(Halved).parameters) == ["factor", "offset", "name_of_it"]
    assert inspect.signature(Halved).parameters["offset"].default == 3


def test_values_are_checked_in_order_and_become_attributes():
    assert Scaled(2).both == (2.0, 7) and Scaled(2, offset=4).both == (2.0, 4)
    assert (Halved(1).offset, Halved(1, None).offset, Halved(1).name_of_it) == (3, 1, "half")
    assert Scaled(2)(np.float64(3)) == 13
    with pytest.raises(
        ValueError, match=r"Input factor is not within the required interval of \[0, 16777216\]"
    ) as error:
        Halved(-1, "x")
    assert error.value.__notes__ == ["For 'Halved', got -1."]


@pytest.mark.parametrize(
    ("positional", "named", "text"),
    [
        ((), {}, "For 'Halved', missing a required argument: 'factor'"),
        ((1, 2, "a", 4), {}, "For 'Halved', too many positional arguments"),
        ((1,), {"factor": 1}, "For 'Halved', multiple values for argument 'factor'"),
        ((1,), {"other": 1}, "For 'Halved', got an unexpected keyword argument 'other'"),
    ],
)
def test_calls_that_do_not_fit_name_the_class(positional, named, text):
    with pytest.raises(TypeError, match=text):
        Halved(*positional, **named)


def test_arguments_are_documented_in_front_of_errors_and_remembered():
    text = inspect.getdoc(Scaled)
    assert text.index("factor: the other number.") < text.index("offset: added") < text.index("Raises:")
    assert "1 for None" in inspect.getdoc(Halved) and "name_of_it" not in inspect.getdoc(Halved)
    assert recorded_arguments(Halved(1, offset=5)) == {"factor": 1, "offset": 5, "name_of_it": "half"}


def test_a_program_may_derive_from_a_transform():
    class Small(vision.RandomCrop):
        def __init__(self, size):
            super().__init__(size, padding=1)

    assert Small(4).size == (4, 4) and Small(4).padding == (1, 1, 1, 1)
    assert Small(2)(np.zeros((4, 4, 3), np.uint8)).shape == (2, 2, 3)
