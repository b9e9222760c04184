"""The same net, weights and batches give MindSpore's loss curve, in both modes."""

import json
from pathlib import Path

import curve_recipes
import pytest

import sporax.mindspore as ms

GOLDEN = json.loads((Path(__file__).parent / "curves.json").read_text())["curves"]
RELATIVE_ERROR = 1e-4
SLOW = {"resnet18", "gpt", "bert", "lstm"}  # more than 5 s each, most of it compiling


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    """Run in one mode, then go back to the one that was set."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    yield request.param
    ms.set_context(mode=before)


def test_every_recipe_has_a_curve_that_falls():
    assert GOLDEN.keys() == curve_recipes.RECIPES.keys()
    for name, losses in GOLDEN.items():
        assert len(losses) == len(list(curve_recipes.RECIPES[name].batches()))
        assert sum(losses[-5:]) < 0.95 * sum(losses[:5])


@pytest.mark.sampled(6)
@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", curve_recipes.RECIPES)
def test_curve_is_that_of_mindspore(name):
    assert curve_recipes.run(ms, name) == pytest.approx(GOLDEN[name], rel=RELATIVE_ERROR, abs=0)
