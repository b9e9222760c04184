"""Which variables of a step that a plan shards are on the hosts, and what is refused there."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.passes.pass_order import SAVED_IN_FILES
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.runtime.devices.global_view import Argument
from sporax.runtime.planned.step import check_offload, sent_to_hosts

MESH = DeviceMatrix((2, 4))
WHOLE, ROWS, BOTH = Placement(((), ())), Placement(((1,), ())), Placement(((1,), (0,)))


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


ARGUMENTS = [
    Argument(Role.PARAMETER, "large", shaped(16, 8), trainable=True),  # 512 bytes
    Argument(Role.PARAMETER, "small", shaped(8, 8), trainable=True),  # 256 bytes
    Argument(Role.PARAMETER, "steps", shaped()),
    Argument(Role.STATE, "mask", shaped(64, 8)),
    Argument(Role.DATA, "input 0", shaped(64, 8)),
]
REPLICATED = [WHOLE, WHOLE, Placement(()), WHOLE, WHOLE]


@pytest.fixture(scope="module")
def planned():
    """A step that reads all arguments, and the plan that shards nothing."""

    def step(large, small, steps, mask, x):
        return ((x * mask) @ small).sum() + large.sum() + steps

    traced = jax.make_jaxpr(step)(*(argument.array for argument in ARGUMENTS))
    graph = ingest(traced, [(argument.role, argument.name) for argument in ARGUMENTS]).graph
    return graph, replicated_plan(graph, MESH)


def on_hosts(planned, above=0, within=-1, places=REPLICATED, arguments=ARGUMENTS):
    marked = sent_to_hosts(arguments, {"host", f"offload above {above} within {within}"}, *planned, places, XLA_CPU)
    assert [replace(argument, on_host=False) for argument in marked] == [
        replace(argument, on_host=False) for argument in arguments
    ]
    return [argument.name for argument in marked if argument.on_host]


def test_all_parameters_with_dimensions_go_to_the_hosts_and_nothing_without_the_setting(planned):
    assert on_hosts(planned) == ["large", "small"]
    assert sent_to_hosts(ARGUMENTS, {"recompute"}, *planned, REPLICATED, XLA_CPU) == ARGUMENTS


def test_the_parameters_of_largest_slices_go_until_what_the_model_predicts_fits(planned):
    """Sharded over all devices the large one is 64 bytes on each, and the small one is the larger."""
    peak = memory_of(*planned, XLA_CPU).peak_bytes
    assert on_hosts(planned, peak) == []
    assert on_hosts(planned, peak - 1) == on_hosts(planned, peak - 512) == ["large"]
    assert on_hosts(planned, peak - 513) == ["large", "small"]
    sharded = [BOTH, *REPLICATED[1:]]
    assert on_hosts(planned, peak - 1, places=sharded) == ["small"]
    assert on_hosts(planned, peak - 257, places=sharded) == ["large", "small"]


@pytest.mark.parametrize(("place", "large_bytes"), [(WHOLE, 512), (ROWS, 128), (BOTH, 64)])
def test_a_host_must_have_room_for_the_slices_of_all_its_devices(planned, place, large_bytes):
    places = [place, *REPLICATED[1:]]
    there = 8 * (large_bytes + 256)
    assert on_hosts(planned, within=there, places=places) == ["large", "small"]
    with pytest.raises(SporaxRuntimeError, match=f"is {there - 1} bytes, but {there} bytes of Parameters and state"):
        on_hosts(planned, within=there - 1, places=places)


def test_what_is_on_the_hosts_already_counts_there_and_is_not_sent_again(planned):
    marked = [replace(ARGUMENTS[0], on_host=True), *ARGUMENTS[1:]]
    peak = memory_of(*planned, XLA_CPU).peak_bytes
    assert on_hosts(planned, peak - 1, arguments=marked) == ["large", "small"]
    with pytest.raises(SporaxRuntimeError, match=f"but {8 * 512} bytes"):
        on_hosts(planned, peak, within=1, arguments=marked)


@pytest.mark.parametrize("tag", [SAVED_IN_FILES, "files 0 of 4"])
def test_files_are_refused(tag):
    with pytest.raises(
        SporaxNotImplementedError, match=r"^For 'set_offload_context', 'disk' is offered in steps of one"
    ):
        check_offload({"recompute", tag})


def test_memory_of_hosts_is_not_refused():
    check_offload({"host", "recompute", "offload", "offload kept", "offload above 0 within -1"})
