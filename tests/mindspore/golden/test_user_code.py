"""Training code in the shapes that users write gives MindSpore's losses: in both modes, and cut over eight devices."""

import json
from pathlib import Path

import pytest
import user_code_recipes

import sporax.mindspore as ms

GOLDEN = json.loads((Path(__file__).parent / "user_code.json").read_text())
RELATIVE_ERROR = 2e-5


def test_every_recipe_was_recorded():
    assert list(GOLDEN) == [recipe.__name__ for recipe in user_code_recipes.RECIPES]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("recipe", user_code_recipes.RECIPES, ids=lambda recipe: recipe.__name__)
def test_losses_are_those_of_mindspore(recipe, mode):
    assert recipe(ms) == pytest.approx(GOLDEN[recipe.__name__], rel=RELATIVE_ERROR)


CUT = [
    user_code_recipes.step_that_skips_overflows,
    user_code_recipes.optimizer_of_hyper_map,
    user_code_recipes.while_in_construct,
    user_code_recipes.loop_with_break,
    user_code_recipes.gradient_accumulation,
]


@pytest.mark.parametrize("recipe", CUT, ids=lambda recipe: recipe.__name__)
@pytest.mark.sampled(5)
def test_losses_are_the_same_on_eight_devices(recipe, mode, monkeypatch):
    if mode == "pynative":  # in which only what `jit` compiles is cut
        losses = user_code_recipes.losses
        monkeypatch.setattr(user_code_recipes, "losses", lambda ms, step: losses(ms, ms.jit(step)))
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:
        assert recipe(ms) == pytest.approx(GOLDEN[recipe.__name__], rel=RELATIVE_ERROR)
    finally:
        ms.reset_auto_parallel_context()
