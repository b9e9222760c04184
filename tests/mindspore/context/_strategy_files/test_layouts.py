"""Layouts of Parameters as MindSpore's tools read them, from hand-made plans."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Input, OperatorGraph, Role
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan, Resharding
from sporax.ir.uneven import UnevenRows
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.mindspore.context._strategy_files.layouts import (
    device_arrangement,
    layouts_of_stage,
    parameter_layouts,
    ranks_with_same_slices,
)
from sporax.runtime.planned.step import Argument

MESH = DeviceMatrix((2, 2, 2))
P = Placement


def step(parameters, reshardings=None, blocked=None):
    """A step whose first input is a constant, with Parameters of these names, shapes and places between steps."""
    names = [*parameters]
    shapes = [shape for shape, _ in parameters.values()]
    graph = OperatorGraph(
        (TensorSpec(()), *map(TensorSpec, shapes)),
        (),
        (Input(0), *(Input(number, Role.PARAMETER, name) for number, name in enumerate(names, 1))),
        (),
    )
    places = (P(()), *(place for _, place in parameters.values()))
    reshardings = {names.index(name) + 1: Resharding(place) for name, place in (reshardings or {}).items()}
    arguments = [
        SimpleNamespace(role=Role.PARAMETER, name=name, array=jax.ShapeDtypeStruct(shape, jnp.float32))
        for name, shape in zip(names, shapes, strict=True)
    ]
    return SimpleNamespace(
        graph=graph,
        step=SimpleNamespace(constants=(0,)),
        plan=Plan(MESH, places, (), (), reshardings),
        arguments=arguments,
        blocked=blocked or {},
    )


@pytest.mark.parametrize(
    ("dims", "matrix", "tensor_map"),
    [
        (((1, 2), ()), (2, 4), (0, -1)),  # two axes in a row are one of the device matrix
        (((), ()), (8,), (-1, -1)),
        (((0,), (2,)), (2, 2, 2), (2, 0)),
        (((2, 1), ()), (2, 2, 2), ((0, 1), -1)),  # the other way round they are two
        (((0,), (1, 2)), (2, 4), (1, 0)),
    ],
)
def test_the_coarsest_device_matrix_that_describes_a_sharding(dims, matrix, tensor_map):
    assert device_arrangement(P(dims), MESH) == (matrix, tensor_map)


def test_a_weight_is_described_as_its_operators_read_it():
    layout = parameter_layouts(step({"w": ((16, 8), P(((0,), (1, 2))))}), rank=0)["w"]
    assert layout[:6] == ([2, 4], [1, 0], [8, 2], 0, True, "")
    assert (layout.full_shape, layout.shard_shape, layout.split_rows) == ([16, 8], [8, 2], ())


def test_a_weight_in_optimizer_shards_names_the_ranks_that_share_a_slice():
    weights = {"w": ((16, 8), P(((0, 1, 2), ())))}
    layout = parameter_layouts(step(weights, {"w": P(((0,), ()))}), rank=5)["w"]
    assert layout.slice_shape == [8, 8]
    assert layout.shard_shape == [2, 8]
    assert layout.opt_shard_group == "4-4-5-6-7"


def test_a_moment_is_described_like_its_weight():
    home = P(((0, 1, 2), ()))
    parameters = {"fc.w": ((16, 8), home), "moment1.fc.w": ((16, 8), home), "moment2.fc.w": ((16, 8), P(((), ())))}
    layouts = parameter_layouts(step(parameters, {"fc.w": P(((0,), ()))}), rank=0)
    assert layouts["moment1.fc.w"] == layouts["fc.w"]
    assert layouts["moment2.fc.w"].slice_shape == [16, 8]  # it is kept otherwise


def test_a_table_in_uneven_parts_has_the_rows_of_this_rank():
    rows = UnevenRows((5, 2))
    parameters = {"table": ((7, 4), P(((0,), ())))}
    for rank, count in ((0, 5), (4, 2)):
        layout = parameter_layouts(step(parameters, blocked={0: Blocked(0, rows)}), rank)["table"]
        assert (layout.slice_shape, layout.shard_shape, layout.full_shape) == ([count, 4], [count, 4], [7, 4])
        assert not layout.uniform_split
        assert layout.split_rows == (5, 2)
    whole = {"table": ((7, 4), P(((), ())))}
    layout = parameter_layouts(step(whole, blocked={0: Blocked(0, rows)}), 0)["table"]
    assert (layout.slice_shape, layout.split_rows) == ([7, 4], ())


def test_layouts_of_several_stages_are_not_offered():
    step = SimpleNamespace(settings=PlanSettings(ParallelConfig(device_num=8, pipeline_stages=2)))
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'parameter_layout_dict', layouts of a network in several pipeline stages are not offered yet",
    ):
        layouts_of_stage(step)


def test_ranks_that_differ_along_axes_which_shard_no_trained_parameter_have_the_same_slices():
    w = jnp.ones((4, 4))
    step = SimpleNamespace(
        plan=SimpleNamespace(inputs=(Placement(((0,), ())), Placement(((), (1,)))), mesh=DeviceMatrix((2, 2, 2))),
        step=SimpleNamespace(constants=()),
        arguments=(
            Argument(Role.PARAMETER, "w", w, trainable=True),
            Argument(Role.PARAMETER, "frozen", w, trainable=False),
        ),
    )
    assert ranks_with_same_slices(step) == [0, 1, 2, 3]
    step.plan.inputs = (Placement(((), ())), Placement(((), (1,))))
    assert ranks_with_same_slices(step) == [*range(8)]  # the weight is on every device as a whole
