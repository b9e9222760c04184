"""One vocabulary for searches and hardware, in letters of any case, everywhere."""

import jax.numpy as jnp
import pytest

import sporax
import sporax.mindspore as ms
from sporax.base.errors import SporaxValueError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import SEARCH_NAMES, full_name
from sporax.ir.hardware import load_profile
from sporax.ir.variables import read
from sporax.mindspore.parallel.auto_parallel import AutoParallel

PAIRS = [("dynamic", "dynamic_programming"), ("Recursive", "recursive_programming"), ("ILP", "ilp")]
W = jnp.ones((8, 8))


@pytest.fixture(autouse=True)
def _reset():
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.parametrize(("word", "full"), PAIRS)
def test_every_place_takes_every_name(word, full):
    assert full_name(word) == full
    assert PlanSettings(ParallelConfig()).under({"SPORAX_PLAN_MODE": word}).parallel.search_mode == full
    assert full_name(read({"SPORAX_PLAN_MODE": word}, "SPORAX_PLAN_MODE")) == full
    ms.set_auto_parallel_context(search_mode=word)
    assert ms.get_auto_parallel_context("search_mode") == full
    method = sporax.plan(jnp.dot, W, W, devices=8, hardware="H100", mode=word).search.method
    assert method == sporax.plan(jnp.dot, W, W, devices=8, hardware="h100", mode=full).search.method


def test_auto_parallel_takes_short_names():
    assert AutoParallel(ms.nn.ReLU(), "recursive")._settings.search_mode == "recursive_programming"


def test_a_name_that_does_not_exist_gets_the_one_that_was_meant():
    assert full_name("none of them") == "none of them"
    with pytest.raises(SporaxValueError, match=r"'dynamik'\. Did you mean 'dynamic'\?"):
        ms.set_auto_parallel_context(search_mode="dynamik")
    with pytest.raises(SporaxValueError, match=r"Did you mean 'repeated_blocks'\?"):
        sporax.plan(jnp.dot, W, W, devices=8, mode="repeated_block")
    with pytest.raises(SporaxValueError, match=r"Did you mean 'recursive'\?"):
        PlanSettings(ParallelConfig()).under({"SPORAX_PLAN_MODE": "recursve"})
    with pytest.raises(SporaxValueError, match=r"Did you mean 'search_mode'\?"):
        ms.set_auto_parallel_context(serch_mode="dynamic")
    with pytest.raises(SporaxValueError, match=r"Did you mean 'max_call_depth'\?"):
        ms.set_context(max_cal_depth=3)
    assert "dynamic" in SEARCH_NAMES


def test_hardware_is_found_in_letters_of_any_case():
    assert load_profile("H100") is load_profile("h100")
    assert load_profile("TPU-v5e").name == load_profile("tpu-v5e").name
    with pytest.raises(SporaxValueError, match=r"Did you mean 'h100'\?"):
        load_profile("h1000")
    assert PlanSettings(ParallelConfig()).under({"SPORAX_HARDWARE": "Symbolic"}).symbolic
