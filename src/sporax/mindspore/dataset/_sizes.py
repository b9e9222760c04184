"""Arithmetic on the sizes of datasets and rows: splitting a dataset into parts, and what shapes have in common."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks


def split_counts(sizes: object, total: int) -> list[int]:
    """Rows of each part; a rounding difference goes to the first part that can take it."""
    if not isinstance(sizes, list):
        raise _checks.type_error("split", "sizes", "a list of int or a list of float", sizes)
    if not sizes:
        raise SporaxValueError("For 'split', the argument 'sizes' must not be empty.")
    if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        _check_counts(sizes, total)
        return sizes
    return _counts_of_fractions(sizes, total)


def _check_counts(sizes: list[int], total: int) -> None:
    if min(sizes) <= 0:
        # Before the sum, so that a negative size is named as such.
        raise SporaxValueError(f"For 'split', sizes must be positive, but got {sizes}.")
    if sum(sizes) != total:
        raise SporaxRuntimeError(
            f"For 'split', sizes must add up to the dataset's size {total}, but {sizes} add up to {sum(sizes)}."
        )


def _counts_of_fractions(sizes: list[Any], total: int) -> list[int]:
    # Fractions such as three times 0.333333 count as 1.
    if not all(isinstance(size, float) and 0 < size <= 1 for size in sizes) or abs(sum(sizes) - 1) > 1e-5:
        raise SporaxValueError(f"For 'split', fractions must be in (0, 1] and add up to 1, but got {sizes}.")
    counts = [round(size * total) for size in sizes]
    # MindSpore refuses an empty part rather than giving a dataset without rows.
    if 0 in counts:
        raise SporaxRuntimeError(
            f"For 'split', every part must have a row, but the fraction {sizes[counts.index(0)]} of {total} rows has none."
        )
    # `round` may miss the total by a few rows in either direction.
    excess = sum(counts) - total
    # The first part that keeps at least one row, as MindSpore corrects it.
    receiver = next(i for i, count in enumerate(counts) if count > excess)
    counts[receiver] -= excess
    return counts


def common_shapes(shapes: list[list[int | None]], row_shapes: list[list[int]]) -> list[list[int | None]]:
    """Shapes with None where two rows differ."""
    for shape, other in zip(shapes, row_shapes, strict=True):
        if len(shape) != len(other):
            raise SporaxRuntimeError(
                f"For 'output_shapes', rows must have the same number of dimensions, but got {shape} and {other}."
            )
    return [
        [a if a == b else None for a, b in zip(shape, other, strict=True)]
        for shape, other in zip(shapes, row_shapes, strict=True)
    ]
