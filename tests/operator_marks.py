"""Marks of MindSpore's operators with what they state of their dimensions, for tests that trace no program."""

from sporax.ir.marks import OperatorMark, Side
from sporax.ir.operator_dims import UNSTATED
from sporax.mindspore.ops._core.operator import OPERATORS


def operator_mark(name, number=0, side=Side.IN, strategy=None, out=None, path="", **attributes):
    """The mark of a call of the operator of this name; one of no operator states nothing."""
    # Operators that have got another name later are registered under their kernel's.
    dims = next((operator.dims for operator in OPERATORS.values() if operator.name == name), UNSTATED)
    return OperatorMark(name, number, side, strategy, out, tuple(sorted(attributes.items())), path, dims)
