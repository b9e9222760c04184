"""`merge_sliced_parameter`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharded_recipes import STRATEGIES, W1

from sporax.mindspore import Parameter, Tensor
from sporax.mindspore.train import build_searched_strategy, merge_sliced_parameter
from sporax.mindspore.train.checkpoint.strategy import read_strategy


def sliced(values: Any, name: str = "w1") -> Parameter:
    return Parameter(Tensor(np.asarray(values, np.float32)), name=name)


def test_slices_are_concatenated_without_a_strategy() -> None:
    merged = merge_sliced_parameter([sliced(W1[:4]), sliced(W1[4:])])
    np.testing.assert_array_equal(merged.asnumpy(), W1)
    assert merged.name == "w1"


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_slices_of_a_strategy(name: str) -> None:
    path = str(STRATEGIES / f"{name}.ckpt")
    strategy = read_strategy("test", "strategy", path)
    slices = [sliced(W1[strategy.layouts["w1"][0].region(rank, W1.shape)]) for rank in range(8)]
    np.testing.assert_array_equal(merge_sliced_parameter(slices, build_searched_strategy(path)).asnumpy(), W1)


def test_slices_that_do_not_fit_are_refused() -> None:
    strategy = build_searched_strategy(str(STRATEGIES / "a.ckpt"))
    for arguments, error, match in (
        ((sliced([1.0]),), TypeError, "must be a list"),
        (([],), ValueError, "must not be empty"),
        (([1],), TypeError, "must hold Parameters, but got int"),
        (([sliced([1.0]), sliced([1.0], "v")],), ValueError, "the same name, but slice 1 has v and slice 0 w1"),
        (([sliced([1.0]), sliced([[1.0]])],), ValueError, "same number of dimensions"),
        (([sliced([[1.0]]), sliced([[1.0, 2.0]])],), ValueError, "same shape behind dimension 0"),
        (([sliced([1.0])], {}), KeyError, "must have 'w1'"),
        (([sliced([1.0])], [1]), TypeError, "'strategy' must be a dict"),
        (([sliced([1.0])], {"w1": 3}), ValueError, "the layout of 'w1' in 'strategy' is broken"),
        (([sliced([[1.0]])], strategy), ValueError, "for each of 8 ranks, but got 1"),
        (([sliced([1.0])] * 8, strategy), ValueError, "do not fit the layout"),
    ):
        with pytest.raises(error, match=match):
            merge_sliced_parameter(*arguments)
