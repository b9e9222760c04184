"""Cut operators compute what whole ones do, forwards and backwards, with the collectives that the plan says.

Many operators share one step, so that XLA compiles few programs.
"""

import itertools
import random
import zlib

import jax
import numpy as np
import pytest
from cut_cases import CASES, NUM_DEVICES, splits
from program_text import collective_bytes, planned_bytes

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.marks import OperatorMark, Side
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import prime_mesh
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import init
from sporax.planner.pins.strategies import placements_for

PER_STEP = 30
MESH = prime_mesh(DeviceMatrix((NUM_DEVICES,)))


@pytest.fixture(autouse=True)
def _graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    init()


class Operators(nn.Cell):
    """Results of several operators, and the slopes of their squares in the float inputs."""

    def __init__(self, members):
        super().__init__()
        self.cases = [case for case, _ in members]
        self.primitives = [case.primitive(strategy) for case, strategy in members]

    def construct(self, *tensors):
        remaining = iter(tensors)
        return [
            self.results(case, primitive, list(itertools.islice(remaining, len(case.values))))
            for case, primitive in zip(self.cases, self.primitives, strict=True)
        ]

    def results(self, case, primitive, tensors):
        def squares(*inputs):
            actual = _tensors(case.run(primitive, *inputs))
            return sum(ms.ops.square(item).sum() for item in actual if item.dtype == ms.float32), actual

        if not case.slopes:
            return _tensors(case.run(primitive, *tensors))
        positions = tuple(number for number, value in enumerate(case.values) if value.dtype == "float32")
        (loss, actual), slopes = ms.value_and_grad(squares, positions, has_aux=True)(*tensors)
        return [loss, *actual, *_tensors(slopes)]


def _tensors(results):
    return jax.tree.leaves(results, is_leaf=lambda leaf: isinstance(leaf, Tensor))


def arrays(members):
    return [value.array(seed) for case, _ in members for seed, value in enumerate(case.values)]


def run(members, **settings):
    """Results as arrays, and the step that computed them."""
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(**settings)
    net = Operators(members)
    inputs = [Tensor(array) for array in arrays(members)]
    results = net(*inputs)
    return (
        jax.tree.map(lambda item: item.asnumpy(), results, is_leaf=lambda item: isinstance(item, Tensor)),
        net,
        inputs,
    )


def legal(case):
    """The strategies of a case: those written down, or some of all that the planner accepts."""
    if case.strategies:
        return case.strategies
    specs = [TensorSpec(value.shape, value.dtype) for value in case.values]
    primitive = case.primitive()
    said = {**primitive._attributes, "axis": case.constants[0] if case.constants else -1, **primitive._attributes}

    def fits(strategy):
        named = tuple((name, value) for name, value in said.items() if isinstance(value, int | tuple | str))
        try:
            placements_for(
                OperatorMark(case.name, 0, Side.IN, strategy, None, named, dims=primitive.operator.dims), specs, MESH
            )
        except SporaxRuntimeError:
            return False
        return True

    every = list(itertools.product(*(splits(value.shape) for value in case.values)))
    random.Random(zlib.crc32(case.name.encode())).shuffle(every)
    return list(
        itertools.islice((item for item in every if np.max(np.concatenate(item)) > 1 and fits(item)), case.draws)
    )


MEMBERS = [(case, strategy) for case in CASES for strategy in legal(case)]
MERGED = [member for member in MEMBERS if member[0].merges]
OTHERS = [member for member in MEMBERS if not member[0].merges]
STEPS = [MERGED, *(OTHERS[start : start + PER_STEP] for start in range(0, len(OTHERS), PER_STEP))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("members", STEPS, ids=lambda members: f"{members[0][0].name}-{members[-1][0].name}")
def test_sharded_operators_equal_unsharded_ones(members):
    cases = list(dict.fromkeys(case for case, _ in members))
    whole = dict(zip(cases, run([(case, None) for case in cases])[0], strict=True))
    cut, net, inputs = run(
        members, parallel_mode="semi_auto_parallel", device_num=NUM_DEVICES, dataset_strategy="full_batch"
    )
    for (case, strategy), actual in zip(members, cut, strict=True):
        for one, other in zip(whole[case], actual, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape, (case.name, strategy)
            scale = np.max(np.abs(one), initial=1e-6) if one.dtype == np.float32 else 0
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-5 * scale, err_msg=f"{case.name} {strategy}")
    planned = net.program.plan(*inputs)
    _assert_same_collectives(collective_bytes(net.program, *inputs), planned_bytes(planned), members)
    assert not planned.plan.notes


def _assert_same_collectives(actual, planned, members):
    """Kinds and bytes agree, where XLA does not merge equal ones.

    Borders of windows are compared by presence: those of two dimensions overlap in corners, which a plan leaves out.
    """
    assert actual.pop("permute", 0) >= planned.pop("permute", 0)
    if any(case.merges for case, _ in members):
        assert actual.keys() == planned.keys()
        assert all(actual[kind] <= planned[kind] for kind in actual)
    else:
        assert actual == planned
