"""Alpa's cost formulas (Zheng et al., OSDI 2022; its test-suite states plan costs in closed form)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sporax.planner.communication.moves import LinkCosts


@dataclass(frozen=True)
class AlpaLinks(LinkCosts):
    """Per mesh axis alpha = 1 and beta of `axis_beta` (1 where nothing is said); bytes are those of the gathered tensor."""

    def _beta(self, axis):
        return self.axis_beta[axis] if self.axis_beta else 1.0

    def gather(self, axes, sizes, local_bytes):
        total = 0.0
        for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
            local_bytes *= size
            total += 1 + self._beta(axis) * (size - 1) / size * local_bytes + 0.1
        return total

    def all_reduce(self, axes, sizes, local_bytes):
        return sum(
            1 + 2 * self._beta(axis) * (size - 1) / size * local_bytes + 0.01
            for axis, size in zip(axes, sizes, strict=True)
        )

    def reduce_scatter(self, axes, sizes, local_bytes):
        total = 0.0
        for axis, size in zip(axes, sizes, strict=True):
            total += 1 + self._beta(axis) * (size - 1) / size * local_bytes + 0.001
            local_bytes /= size
        return total

    def all_to_all(self, axes, sizes, local_bytes):
        n = math.prod(sizes)
        return 1 + max(map(self._beta, axes)) * (n - 1) / n**2 * (local_bytes * n) * n / 2 + 0.001

    def permute(self, axes, sizes, local_bytes):
        return 1 + max(map(self._beta, axes)) * local_bytes

    def copy(self, local_bytes):
        return 0.0


def all_reduce(num_bytes, n, beta=1.0):
    return 1 + 2 * beta * (n - 1) / n * num_bytes + 0.01
