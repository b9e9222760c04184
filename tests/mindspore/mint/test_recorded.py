"""Layers, functions and optimizers of `sporax.mindspore.mint` give what PyTorch and MindSpore's own `mint` give.

See `mint_recipes` for what is compared, and tools/golden/make_mint.py for how it was recorded.
"""

import functools
import json
from pathlib import Path

import mint_recipes as recipes
import numpy as np
import optimizer_recipes
import pytest

import sporax.mindspore as ms

HERE = Path(__file__).parent
RECORDED = {source: json.loads((HERE / f"recorded_{source}.json").read_text()) for source in ("torch", "mindspore")}
RECIPES = {"layers": recipes.LAYERS, "functions": recipes.FUNCTIONS}
OURS = recipes.LikeMindSpore(ms)
our = functools.cache(lambda kind, name: recipes.result(OURS, RECIPES[kind][name]))
RELATIVE, ABSOLUTE = 2e-5, 3e-6

#: Where we differ on purpose: reason → (source, recipe). Each is checked from both sides.
DEVIATIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "without reduction, MindSpore 2.10 forgets `ignore_index`; PyTorch does not": (
        ("mindspore", "NLLLoss(ignore_index=0, reduction='none')"),
    ),
    "MindSpore's CPU kernel of `any` is wrong": (("mindspore", "mint.any(k,1,True)"),),
    "MindSpore's CPU kernel loses digits of the gradient where tanh is near 1": (("mindspore", "Tanh()"),),
}


def cases():
    """Both sources of a call stand side by side: one process runs both, and computes our values once."""
    for kind, of_kind in RECIPES.items():
        for name in of_kind:
            for source, kinds in RECORDED.items():
                if kinds[kind][name] is not None:
                    yield pytest.param(source, kind, name, id=f"{source}-{name}")


def problem(expected, actual):
    """What differs, or None."""
    if isinstance(expected, dict) and "dtype" in expected:
        if (expected["dtype"], expected["shape"]) != (actual["dtype"], actual["shape"]):
            return f"{actual['dtype']}{actual['shape']} instead of {expected['dtype']}{expected['shape']}"
        close = np.allclose(actual["values"], expected["values"], RELATIVE, ABSOLUTE, equal_nan=True)
        return None if close else f"{actual['values']} instead of {expected['values']}"
    if isinstance(expected, dict):
        if expected.keys() != actual.keys():
            return f"{sorted(actual)} instead of {sorted(expected)}"
        return next((f"{key}: {why}" for key in expected if (why := problem(expected[key], actual[key]))), None)
    if len(expected) != len(actual):
        return f"{len(actual)} instead of {len(expected)} arrays"
    return next((why for pair in zip(expected, actual, strict=True) if (why := problem(*pair))), None)


@pytest.mark.sampled(130)
@pytest.mark.parametrize(("source", "kind", "name"), list(cases()))
def test_a_call_gives_what_mindspore_gave(source, kind, name):
    difference = problem(RECORDED[source][kind][name], our(kind, name))
    why = next((why for why, entries in DEVIATIONS.items() if (source, name) in entries), None)
    if why is None:
        assert difference is None
    else:
        assert difference is not None, f"no longer deviates ({why})"


@pytest.mark.parametrize("name", recipes.OPTIMIZERS)
@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_ten_steps(name, mode):
    ms.set_context(mode=mode)
    trained = OURS.train(name, optimizer_recipes.start(), optimizer_recipes.gradients)
    for ours, theirs in zip(trained, RECORDED["torch"]["optimizers"][name], strict=True):
        assert np.linalg.norm(np.subtract(ours, theirs)) <= 1e-5 * np.linalg.norm(theirs)


def test_everything_is_recorded():
    """A recipe that neither framework could run tests nothing."""
    for kind, of_kind in RECIPES.items():
        for name in of_kind:
            assert any(RECORDED[source][kind][name] is not None for source in RECORDED), name
    assert RECORDED["torch"]["optimizers"].keys() == recipes.OPTIMIZERS.keys()
