"""Transforms for any data, with results MindSpore 2.10 gives."""

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import transforms as t, vision

from .conftest import rows


class Int16:
    """A dtype as `mindspore.int16` is one: an object that knows its numpy dtype."""

    np_dtype = np.dtype(np.int16)


@pytest.mark.parametrize(
    ("transform", "inputs", "dtype", "expected"),
    [
        (t.TypeCast("int32"), [[1.7, -1.7]], "int32", [1, -1]),
        (t.TypeCast(np.int32), [[1.7]], "int32", [1]),
        (t.TypeCast(Int16()), [[1.7]], "int16", [1]),
        (t.TypeCast(np.uint8), [[300.0, -1.0, 2.7]], "uint8", [44, 255, 2]),
        (t.TypeCast(np.bool_), [[2, 0]], "bool", [True, False]),
        (t.OneHot(4), [2], "int64", [0, 0, 1, 0]),
        (t.OneHot(4), [np.uint32(2)], "uint32", [0, 0, 1, 0]),
        (t.OneHot(3), [[1, 2]], "int64", [[0, 1, 0], [0, 0, 1]]),
        (t.OneHot(3), [[[1], [2]]], "int64", [[0, 1, 0], [0, 0, 1]]),
        (t.OneHot(4, 0.1), [2], "float64", [0.025, 0.025, 0.925, 0.025]),
        (t.Fill(3), [[1.0, 2.0]], "float64", [3, 3]),
        (t.Fill(3.7), [[1, 2]], "int64", [3, 3]),
        (t.Mask(t.Relational.EQ, 3), [[1, 3]], "bool", [False, True]),
        (t.Mask(t.Relational.GT, 2, np.int32), [[1, 3]], "int32", [0, 1]),
        (t.Concatenate(0, np.array([1.0]), np.array([2.0])), [[5.0, 6.0]], "float64", [1, 5, 6, 2]),
        (t.Concatenate(), [[5.0, 6.0], [7.0]], "float64", [5, 6, 7]),
        (t.PadEnd([4], 7), [[5, 6]], "int64", [5, 6, 7, 7]),
        (t.PadEnd([1]), [[5, 6]], "int64", [5]),
        (t.PadEnd([None, 3]), [[[5, 6]]], "int64", [[5, 6, 0]]),
        (t.PadEnd([100, 2], 3), [5], "int64", 5),
        (t.Slice(True), [[5, 6, 7]], "int64", [5, 6, 7]),
        (t.Slice(slice(0, 2)), [[5, 6, 7]], "int64", [5, 6]),
        (t.Slice([0, 2]), [[5, 6, 7]], "int64", [5, 7]),
        (t.Slice(1), [[5, 6, 7]], "int64", [6]),
        (t.Slice(-1), [[5, 6, 7]], "int64", [7]),
        (t.Slice(None, 1), [[[5, 6, 7]]], "int64", [[6]]),
        (t.Slice(..., 1), [[[5, 6, 7]]], "int64", [[6]]),
    ],
)
def test_a_transform_gives_the_documented_result(transform, inputs, dtype, expected):
    result = transform(*(np.asarray(value) for value in inputs))
    assert result.dtype == dtype
    assert np.allclose(result, expected)


def test_transforms_of_several_columns():
    first, second = t.Duplicate()(np.array([5, 6]))
    assert first.tolist() == second.tolist() == [5, 6]
    actual, places, counts = t.Unique()(np.array([5, 6, 5]))
    assert (actual.tolist(), places.tolist(), counts.tolist()) == ([5, 6], [0, 1, 0], [2, 1])


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (TypeError, lambda: t.TypeCast("foo")),
        (TypeError, lambda: t.TypeCast(5)),
        (RuntimeError, lambda: t.TypeCast(np.int32)(np.array("a"))),
        (ValueError, lambda: t.OneHot(0)),
        (ValueError, lambda: t.OneHot(4, 1.5)),
        (RuntimeError, lambda: t.OneHot(4)(np.array(4))),
        (RuntimeError, lambda: t.OneHot(4)(np.array(-1))),
        (RuntimeError, lambda: t.OneHot(4)(np.array(2.0))),
        (TypeError, lambda: t.Mask("EQ", 3)),
        (RuntimeError, lambda: t.Slice(5)(np.array([5, 6, 7]))),
        (RuntimeError, lambda: t.Fill("a")(np.array([5]))),
        (RuntimeError, lambda: t.PadEnd([2, 2])(np.array([5]))),
        (RuntimeError, lambda: t.Concatenate()(np.array([5]), np.array([5.0]))),
        (ValueError, lambda: t.Compose([])),
        (TypeError, lambda: t.Compose(3)),
        (ValueError, lambda: t.RandomApply([lambda x: x], 2)),
        (RuntimeError, lambda: t.Duplicate()()),
    ],
)
def test_arguments_that_do_not_fit_are_refused(error, make):
    with pytest.raises(error):
        make()


IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
DOUBLE = vision.Rescale(2.0, 0.0)


def test_compositions_apply_their_members():
    assert t.Compose([DOUBLE, vision.HWC2CHW()])(IMAGE).shape == (3, 2, 4)
    assert t.Compose([lambda x: x + 1, t.TypeCast(np.float32)])(np.array(1)) == np.float32(2)
    assert t.RandomApply([DOUBLE], 1.0)(IMAGE)[0, 0, 1] == 2
    assert t.RandomApply([DOUBLE], 0.0)(IMAGE)[0, 0, 1] == 1
    assert t.RandomChoice([DOUBLE])(IMAGE)[0, 0, 1] == 2
    assert t.RandomOrder([DOUBLE, vision.HWC2CHW()])(IMAGE).shape == (3, 2, 4)


def test_compositions_choose_at_random_by_the_row():
    ds.config.set_seed(1)
    data = ds.NumpySlicesDataset(np.zeros(64), "x", shuffle=False)
    for transform in (
        t.RandomApply([lambda x: x + 1], 0.5),
        t.RandomChoice([lambda x: x + 1, lambda x: x]),
        t.RandomOrder([lambda x: x + 1, lambda x: x * 0]),
    ):
        chosen = [row[0] for row in rows(data.map(transform, "x"))]
        assert 16 < sum(chosen) < 48
        assert [value for batch in rows(data.map(t.Compose([transform])).batch(8)) for value in batch[0]].count(1) > 16


def test_random_parts_of_a_composition_do_not_move_together():
    ds.config.set_seed(1)
    flips = [t.RandomApply([lambda x: x + 1], 0.5), t.RandomApply([lambda x: x + 2], 0.5)]
    data = ds.NumpySlicesDataset(np.zeros(64), "x", shuffle=False)
    for pipeline in (data.map(flips), data.map(t.Compose(flips)), data.map(flips[0]).map(flips[1])):
        assert {row[0] for row in rows(pipeline)} == {0, 1, 2, 3}


def test_a_fraction_is_compared_with_whole_numbers_as_one():
    equal = t.Mask(t.Relational.EQ, 3.5)
    assert equal(np.array([2, 3, 4])).tolist() == [False, True, False]  # as in MindSpore 2.10
    assert equal(np.array([3.0, 3.5])).tolist() == [False, True]


def test_strings_of_a_padding_may_be_longer():
    assert t.PadEnd([3], "-1")(np.array(["1", "2"])).tolist() == ["1", "2", "-1"]
