"""Shardings in the structures that `jax.jit` takes, and in numbers of slices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import sporax
from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.runtime.planned.fixed_arguments import by_leaf, placement_of


class Nothing(NamedTuple):
    pass


class Moments(NamedTuple):
    mean: object
    square: object


M, S = jax.ShapeDtypeStruct((8, 8), "float32"), jax.ShapeDtypeStruct((), "float32")


@pytest.mark.parametrize(
    ("requested", "tree", "shardings"),
    [
        (P("d"), {"w": M, "b": None}, [P("d")]),
        ({"w": P("d"), "b": None}, {"w": M, "b": None}, [P("d")]),
        ({"w": P("d"), "b": None}, {"w": M, "b": [M, M]}, [None, None, P("d")]),
        ((Nothing(), Moments(P(), P("d"))), (Nothing(), Moments([M, M], M)), [P(), P(), P("d")]),
        ((Nothing(), None, Nothing()), (Nothing(), Moments(M, M), Nothing()), [None, None]),
        ((), (), []),
        (None, None, []),
        ((8, 1), {"a": M, "b": M}, [(8, 1), (8, 1)]),
        ({"a": (8, 1), "b": ()}, {"a": M, "b": S}, [(8, 1), ()]),
        ([P("d"), (1, 8)], (M, M), [P("d"), (1, 8)]),
    ],
)
def test_structures_are_taken_as_jit_takes_them(requested, tree, shardings):
    assert by_leaf(requested, tree, "fixed", "argument 0") == shardings


@pytest.mark.parametrize("requested", [{"w": P()}, {"w": P(), "c": P()}, [P(), P()], {"w": "data", "b": None}, (), 3])
def test_other_structures_are_refused(requested):
    with pytest.raises(SporaxValueError, match=r"'fixed' must have a sharding for each of the . arrays of argument 0"):
        by_leaf(requested, {"w": M, "b": M}, "fixed", "argument 0")


def test_states_with_empty_parts_are_fixed_by_position_path_and_for_results():
    state = (Nothing(), Moments(jnp.ones((8, 8)), None))
    shardings = (Nothing(), Moments(P("d"), None))
    planned = sporax.plan(
        lambda s, x: (s, x),
        state,
        jnp.ones((8, 8)),
        devices={"d": 8},
        in_shardings=(shardings, None),
        out_shardings=(shardings, P()),
    )
    assert planned.in_shardings[0][1].mean.spec == planned.out_shardings[0][1].mean.spec == P("d", None)
    by_path = sporax.plan(
        lambda s: s[1].mean * 2, state, devices={"d": 8}, fixed={"[0][1]": Moments(P(None, "d"), None)}
    )
    assert by_path.in_shardings[0][1].mean.spec == P(None, "d")


@pytest.mark.parametrize(
    ("split", "devices", "dims"),
    [
        ((3, 2), (6,), ((1,), (0,))),
        ((2, 3), (6,), ((0,), (1,))),
        ((6, 1), (6,), ((0, 1), ())),
        ((3, 4), (12,), ((2,), (0, 1))),
        ((1, 4), (8,), ((), (0, 1))),
    ],
)
def test_numbers_of_slices_are_met_in_any_order(split, devices, dims):
    mesh = DeviceMatrix({6: (2, 3), 12: (2, 2, 3), 8: (2, 2, 2)}[devices[0]])
    assert placement_of(split, (12, 12), "x", mesh, None) == Placement(dims)


@pytest.mark.parametrize("option", ["fixed", "in_shardings", "out_shardings"])
@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (P(P.UNCONSTRAINED, "d"), r"say of each dimension of {}\['w'\] .*, but got P\(UNCONSTRAINED, 'd'\)"),
        (P("e"), r"name axes of 'devices', \['d'\], but got 'e' for {}\['w'\]"),
        (P(None, None, "d"), r"fit {}\['w'\] of 2 dimensions"),
    ],
    ids=str,
)
def test_refusals_name_the_option_the_array_and_the_value(option, is_named, spec, words):
    """What `jax.jit` refuses as well, in the option that the user wrote."""
    mesh = jax.make_mesh((8,), ("e" if "e" in spec else "d",), axis_types=(jax.sharding.AxisType.Auto,))
    shardings = {"w": jax.sharding.NamedSharding(mesh, spec) if is_named else spec, "b": None}
    request = {"fixed": {0: shardings}, "in_shardings": (shardings,), "out_shardings": shardings}[option]
    words = r"the mesh must be that of the plan" if is_named and "e" in spec else words
    with pytest.raises(
        SporaxValueError, match=words.format(r"result" if option == "out_shardings" else r"args\[0\]")
    ) as error:
        sporax.plan(lambda p: p, {"w": M, "b": M}, devices={"d": 8}, **{option: request})
    assert f"For 'plan', '{option}' must" in str(error.value) or "mesh" in words
