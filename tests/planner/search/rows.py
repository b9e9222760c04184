"""Rows of random blocks that are alike, as decisions with costs and tables between them."""

from __future__ import annotations

import numpy as np


def row_of_blocks(seed: int, number: int, size: int = 3, kinds: int = 1, readers: int = 0, choices: int = 3):
    """Costs per decision, and edges: within blocks, from each to the next, and to `readers` decisions at the end.

    Blocks of several kinds take turns; the first and the last are joined to a decision of their own.
    """
    random = np.random.default_rng(seed)

    def table():
        return random.integers(0, 20, (choices, choices)).astype(float)

    own = [random.integers(0, 20, (size, choices)).astype(float) for _ in range(kinds)]
    inside = [[(a, b, table()) for a in range(size) for b in range(a + 1, size)] for _ in range(kinds)]
    onward = [[(0, 0, table()), (size - 1, 1, table())] for _ in range(kinds)]
    shared = [[table() for _ in range(readers)] for _ in range(kinds)]
    costs = [item for number_of in range(number) for item in own[number_of % kinds]]
    edges = []
    for block in range(number):
        kind, base = block % kinds, block * size
        edges += [(base + a, base + b, item) for a, b, item in inside[kind]]
        if block + 1 < number:
            edges += [(base + a, base + size + b, item) for a, b, item in onward[kind]]
        edges += [(base, number * size + 2 + reader, item) for reader, item in enumerate(shared[kind])]
    costs += [random.integers(0, 20, choices).astype(float) for _ in range(2 + readers)]
    edges += [(number * size, 0, table()), ((number - 1) * size + 1, number * size + 1, table())]
    return costs, edges
