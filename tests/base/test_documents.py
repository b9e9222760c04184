"""JSON documents become records, or an error that names the place and the value."""

from typing import Annotated

import pytest
from msgspec import Meta, Struct

from sporax.base.documents import MalformedError, NotJsonError, decode


class Point(Struct, array_like=True):
    x: int
    y: float


class Drawing(Struct, forbid_unknown_fields=True):
    name: str
    points: tuple[Point, ...] = ()
    layers: dict[Annotated[int, Meta(ge=0)], Point] = {}
    scale: Annotated[float, Meta(gt=0, le=2)] = 1.0

    def __post_init__(self):
        if self.name == "empty":
            raise ValueError("must have another name")


def test_a_document_that_fits_becomes_a_record():
    text = '{"name": "a", "points": [[1, 2.5]], "layers": {"3": [1, 1]}}'
    assert decode(text, Drawing) == Drawing("a", (Point(1, 2.5),), {3: Point(1, 1)})


@pytest.mark.parametrize(("text", "where", "reason"), [
    ("[]", "", "must be an object, but got []"),
    ("{}", "", "must have 'name', but has []"),
    ('{"name": 3}', "name", "must be a text, but got 3"),
    ('{"name": "a", "colour": 1}', "", "has the unknown key 'colour'"),
    ('{"name": "a", "points": [[1, 1], [1.5, 1]]}', "points[1][0]", "must be a whole number, but got 1.5"),
    ('{"name": "a", "points": [[]]}', "points[0]", "must be a list of at least length 2, but got []"),
    ('{"name": "a", "layers": {"1": [1, 1], "7": [1, "b"]}}', "layers.7[1]", "must be a number, but got 'b'"),
    ('{"name": "a", "layers": {"1": [1, 1], "b": [1, 1]}}', "layers", "must have whole numbers as keys, but got 'b'"),
    ('{"name": "a", "scale": 0}', "scale", "must be a number > 0, but got 0"),
    ('{"name": "a", "scale": 3}', "scale", "must be a number <= 2, but got 3"),
    ('{"name": "a", "scale": true}', "scale", "must be a number, but got True"),
    ('{"name": "empty"}', "", "must have another name"),
])  # fmt: skip
def test_what_does_not_fit_is_named_with_its_place_and_value(text, where, reason):
    with pytest.raises(MalformedError) as error:
        decode(text, Drawing)
    assert (error.value.where, error.value.reason) == (where, reason)


@pytest.mark.parametrize("text", ["", "{", '{"name": "a", "scale": NaN', "[" * 100_000, b"\xff"])
def test_what_is_no_json_says_so(text):
    with pytest.raises(NotJsonError, match="the text is no JSON: "):
        decode(text, Drawing)


def test_infinity_is_refused_where_it_stands():
    with pytest.raises(MalformedError, match="'scale' must be a number <= 2, but got inf"):
        decode('{"name": "a", "scale": Infinity}', Drawing)


def test_a_document_above_the_limit_is_not_decoded():
    with pytest.raises(MalformedError, match="must have 10 bytes at most, but has 13"):
        decode('{"name": "a"}', Drawing, max_bytes=10)
