"""Times of operators and links."""

import pytest
from msgspec import structs

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.rules import rule_for, unsharded

MESH = DeviceMatrix((2, 8))
H200 = load_profile("h200")
MODEL = Roofline(H200, link_costs(H200, MESH))
NUMBERS = {"dimension_numbers": (((1,), (0,)), ((), ()))}


def product(rows, inner, columns, dtype="bfloat16"):
    specs = [TensorSpec(shape, dtype, 2) for shape in ((rows, inner), (inner, columns), (rows, columns))]
    return Operation("dot_general", tuple(specs[:2]), (specs[2],), NUMBERS)


def seconds(operation, *cuts):
    rule = rule_for(operation)
    assignment = (*cuts, *unsharded(rule)[len(cuts) :])
    return MODEL.seconds(operation, rule, assignment, MESH) - H200.launch_seconds


def test_a_large_product_is_bound_by_arithmetic():
    assert seconds(product(8192, 8192, 8192)) == pytest.approx(2 * 8192**3 / (H200.compute_efficiency * 989e12))


def test_a_product_of_eight_bits_takes_half_the_time():
    assert seconds(product(8192, 8192, 8192, "float8_e4m3fn")) == pytest.approx(
        2 * 8192**3 / (H200.compute_efficiency * 1979e12)
    )


def test_a_product_with_a_vector_is_bound_by_memory():
    moved = (8192 + 8192 * 8192 + 8192) * 2
    assert seconds(product(1, 8192, 8192)) == pytest.approx(moved / H200.bytes_per_second)


def test_sharding_divides_the_work():
    whole = seconds(product(8192, 8192, 8192))
    assert seconds(product(8192, 8192, 8192), (0,), (), (1,)) == pytest.approx(whole / 16)


def test_elementwise_operators_cost_what_they_write_and_reshapes_nothing():
    spec = TensorSpec((1024, 1024))
    tanh = Operation("tanh", (spec,), (spec,))
    transpose = Operation("transpose", (spec,), (spec,), {"permutation": (1, 0)})

    rule = rule_for(tanh)
    assert MODEL.seconds(tanh, rule, unsharded(rule), MESH) == pytest.approx(spec.num_bytes / H200.bytes_per_second)
    rule = rule_for(transpose)
    assert MODEL.seconds(transpose, rule, unsharded(rule), MESH) == 0.0


def test_axes_within_a_node_are_faster():
    links = link_costs(H200, MESH)

    slow, fast = (1 / (H200.link_efficiency * rate) for rate in (50e9, 360e9))
    assert links.axis_beta == (slow, fast)
    assert links.axis_alpha == (2.7e-6, 0.6e-6)
    assert link_costs(H200, DeviceMatrix((16,))).axis_beta == (slow,)


def test_ranks_decide_what_is_near():
    mesh = DeviceMatrix((2, 8), (), tuple(range(0, 16, 2)) + tuple(range(1, 16, 2)))

    assert link_costs(H200, mesh).axis_beta == link_costs(H200, MESH).axis_beta[::-1]


def test_collectives_of_the_backward_pass_hide_as_far_as_the_profile_says():
    hiding = structs.replace(H200, overlap=0.75)

    assert Roofline(hiding, link_costs(hiding, MESH)).late_communication == 0.25
    assert Roofline(hiding, link_costs(hiding, MESH), late_communication=1.0).late_communication == 1.0
    assert MODEL.late_communication == 1.0
