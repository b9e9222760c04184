"""Arguments of layers that are fields of their class: what is handed on, what a base class takes, documentation, errors."""

import inspect

import pytest

from sporax.mindspore import nn
from sporax.mindspore._declared import Declared, setting
from sporax.mindspore.nn import _arguments as argument


class Base(Declared):
    def _begin(self, values):
        self.begun_with = values.pop("base")


class Layer(Base):
    """A layer.

    Args:
        start, base: two together.

    Attributes:
        seen: what `_prepare` was given.
    """

    first: int = setting(argument.positive_int, "the first.")
    start: float = setting(argument.number, default=1, attribute=False)
    base: float = setting(argument.number, default=2)
    last: bool = setting(argument.boolean, "the last.", default=True)

    def _prepare(self, start):
        self.seen = start, self.first, self.last


def test_arguments_become_attributes_or_are_handed_on():
    layer = Layer(3, last=False)
    assert (layer.seen, layer.begun_with) == ((1.0, 3, False), 2)
    assert vars(layer).keys() == {"begun_with", "first", "last", "seen"}


def test_lines_of_several_arguments_stand_at_the_first_of_them():
    lines = inspect.getdoc(Layer).splitlines()
    assert lines[2:7] == ["Args:", "    first: the first.", "    start, base: two together.", "    last: the last.", ""]
    assert lines[7] == "Attributes:"


@pytest.mark.parametrize(
    ("positional", "named", "text"),
    [
        ((), {}, r"^Layer.__init__\(\) missing a required argument: 'first'$"),
        ((1,), {"other": 1}, r"^Layer.__init__\(\) got an unexpected keyword argument 'other'$"),
        ((1.5,), {}, "For 'Layer', the 'first' must be int"),
        ((1,), {"base": "x"}, "For 'Layer', the 'base' must be float"),
    ],
)
def test_calls_that_do_not_fit_are_refused(positional, named, text):
    with pytest.raises(TypeError, match=text):
        Layer(*positional, **named)


def test_a_derived_layer_may_write_its_own_constructor():
    class Mine(nn.Embedding):
        def __init__(self, rows, width=2):
            super().__init__(rows, width)

    assert Mine(4).embedding_table.shape == (4, 2)
    assert str(inspect.signature(Mine)) == "(rows, width=2)"
    with pytest.raises(ValueError, match="For 'Mine', the 'vocab_size' must be int and must > 0"):
        Mine(0)
