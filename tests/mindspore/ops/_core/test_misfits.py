"""Arguments of wrong kinds: every operator says so in MindSpore's form, whatever Python, numpy or JAX made of them inside."""

import inspect
import random

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxError
from sporax.mindspore import Tensor, context, ops
from sporax.mindspore.ops._core.operator import Composition

WRONG = (
    None, 1.5, -1, True, "a", (), [(1, 2)], ((0, 1), (0, "x")), ms.float32,
    Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones(2, np.int32)), (Tensor(np.ones(2, np.int32)),),
)  # fmt: skip
FIRST = (
    "Eye",
    "Range",
    "IndexPut",
    "TensorShape",
    "InvertPermutation",
    "SparseTensorDenseAdd",
    "PadV3",
    "MirrorPad",
    "Abs",
)
ROUNDS = 6
SIDE_EFFECTS = ("Assert", "Print")


@pytest.fixture(autouse=True)
def eager():
    context.set_context(mode=context.PYNATIVE_MODE)


def raised(call, arguments):
    """What a call raises: None where it accepts the arguments."""
    try:
        call(*arguments)
    except SporaxError as error:
        return None if str(error).startswith("For ") else error
    except Exception as error:
        return error
    return None


def misfits(name, rounds):
    """Raw errors of one operator under arguments drawn from its name."""
    operator = getattr(ops, name)()
    parameters = inspect.signature(operator.__call__).parameters.values()
    count = sum(item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) for item in parameters)
    source = random.Random(name)
    drawn = [[source.choice(WRONG) for _ in range(count)] for _ in range(rounds)]
    return [
        f"{name}{arguments}: {error!r}" for arguments in drawn if (error := raised(operator, arguments)) is not None
    ]


@pytest.mark.parametrize("name", FIRST)
def test_the_error_names_the_operator(name):
    assert not misfits(name, 60)


def test_composed_operators_say_what_does_not_fit():
    found, tried = [], 0
    for name in sorted(dir(ops)):
        form = getattr(ops, name)
        if not (inspect.isclass(form) and issubclass(form, ops.Primitive)) or name in SIDE_EFFECTS:
            continue
        operator = getattr(form, "operator", None)
        if operator is None or not operator.composed:
            continue
        try:
            form()
        except SporaxError:
            continue  # it has arguments of its own
        tried += 1
        found += misfits(name, ROUNDS)
    assert not found, "\n".join(found)
    assert tried > 20


def test_what_code_of_the_user_raises_is_his():
    def broken(x):
        return x.nothing

    with pytest.raises(AttributeError, match="nothing") as caught:
        Composition("Probe", broken)(Tensor(1.0))
    assert not isinstance(caught.value, SporaxError)
