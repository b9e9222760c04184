"""Plans of earlier runs: found again, kept apart, and ignored where a file is not what it should be."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from sporax.cluster.environment import NO_CACHE
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.hardware import load_profile
from sporax.ir.marks import OperatorMark, Side
from sporax.ir.operator_dims import OperatorDims
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.planner import Budget, PlanRequest, request_key
from sporax.planner.rules import register, unregister
from sporax.runtime.devices import agreed_plan

X, W = jnp.ones((8, 4)), jnp.ones((4, 4))


def request(function=jnp.dot, **config):
    graph = ingest(jax.make_jaxpr(function)(X, W), [(Role.DATA, "x"), (Role.PARAMETER, "w")]).graph
    config = {"device_num": 4, "parallel_mode": ParallelMode.AUTO_PARALLEL, **config}
    return PlanRequest(graph, DeviceMatrix((2, 2)), PlanSettings(ParallelConfig(**config)), load_profile("cpu"))


@pytest.fixture
def searches(monkeypatch, tmp_path, without_cache_of_jax):
    """The cache in a folder of the test; the requests that were searched for."""
    monkeypatch.delenv(NO_CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    searched, search = [], agreed_plan.make_plan
    monkeypatch.setattr(
        agreed_plan, "make_plan", lambda request, measure=None: searched.append(request) or search(request, measure)
    )
    agreed_plan.say_once.cache_clear()
    return searched


def files(tmp_path):
    return sorted((tmp_path / "sporax" / "plans").glob("*"))


def test_a_second_run_takes_the_plan_of_the_first_and_says_so_once(searches, tmp_path, capsys):
    first = agreed_plan.agreed_plan(request())
    assert capsys.readouterr().err == ""
    again = [agreed_plan.agreed_plan(request()) for _ in range(2)]
    assert len(searches) == 1
    for each in again:
        assert each.to_json() == first.to_json()
        assert each.search.options == first.search.options
    assert capsys.readouterr().err == (
        f"sporax: a plan of an earlier run is reused ({tmp_path / 'sporax' / 'plans'}; `sporax run --no_cache` searches again)\n"
    )


def test_without_the_cache_nothing_is_read_or_written(searches, tmp_path, monkeypatch):
    monkeypatch.setenv(NO_CACHE, "1")
    for _ in range(2):
        agreed_plan.agreed_plan(request())
    assert len(searches) == 2
    assert files(tmp_path) == []


def test_a_plan_without_a_search_is_not_stored(searches, tmp_path):
    agreed_plan.agreed_plan(request(parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL))
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, other: path.write_bytes(path.read_bytes()[:-1]),
        lambda path, other: path.write_bytes(path.read_bytes().replace(b'"cost_seconds"', b'"cost_second_"')),
        lambda path, other: path.write_text("no plan of ours"),
        lambda path, other: path.write_bytes(b""),
        lambda path, other: path.write_bytes(b"\xff\xfe\n\xff"),
        lambda path, other: path.write_bytes(other.read_bytes()),
    ],
)
def test_files_that_are_damaged_or_of_others_are_ignored_with_one_line(searches, tmp_path, capsys, damage):
    first = agreed_plan.agreed_plan(request())
    (path,) = files(tmp_path)
    agreed_plan.agreed_plan(request(lambda x, w: jnp.tanh(x @ w)))
    (other,) = set(files(tmp_path)) - {path}
    damage(path, other)
    capsys.readouterr()
    assert agreed_plan.agreed_plan(request()).plan == first.plan
    assert capsys.readouterr().err == f"sporax: the stored plan {path} is damaged or not ours; searching again\n"
    # It has been replaced.
    agreed_plan.agreed_plan(request())
    assert len(searches) == 3


def test_a_folder_that_cannot_be_used_costs_nothing_but_the_search(searches, tmp_path):
    (tmp_path / "sporax").write_text("a file where the folder should be")
    for _ in range(2):
        agreed_plan.agreed_plan(request())
    assert len(searches) == 2


def test_the_oldest_files_go(searches, tmp_path, monkeypatch):
    monkeypatch.setattr(agreed_plan, "_MOST_FILES", 2)
    for scale in range(3):
        agreed_plan.agreed_plan(request(lambda x, w, scale=scale: x @ w + scale))
    assert len(files(tmp_path)) == 2


def test_what_a_plan_depends_on_is_in_its_key():
    plain = request()
    others = [
        request(lambda x, w: jnp.tanh(x @ w)),
        request(search_mode="dynamic_programming"),
        replace(plain, mesh=DeviceMatrix((4,))),
        replace(plain, profile=load_profile("h100")),
        replace(plain, placements={0: Placement(((0,), ()))}),
        replace(plain, unsharded_parameters=frozenset({"w"})),
        replace(plain, memory_bytes=1 << 20),
        replace(plain, settings=replace(plain.settings, num_stacked=1)),
    ]
    keys = [request_key(each) for each in (plain, *others)]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert request_key(request()) == keys[0]


def with_mark(dims):
    plain = request()
    mark = OperatorMark("Mine", 1, Side.IN, dims=dims)
    operation = replace(plain.graph.operators[0].operation, params={"mark": mark})
    operators = (replace(plain.graph.operators[0], operation=operation), *plain.graph.operators[1:])
    return replace(plain, graph=replace(plain.graph, operators=operators))


def test_what_depends_on_functions_of_the_user_or_on_the_clock_has_no_key():
    assert request_key(with_mark(OperatorDims())) is not None
    assert request_key(with_mark(OperatorDims(lambda call, shapes: None))) is None
    assert request_key(replace(request(), budget=Budget.of(60.0))) is None
    register("mine", "i j -> i j")
    try:
        assert request_key(request()) is None
    finally:
        unregister("mine")
