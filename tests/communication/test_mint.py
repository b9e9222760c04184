"""Layers of `mint` that need the other ranks."""

import pytest


@pytest.mark.slow
def test_shared_statistics(check_ranks):
    check_ranks("mint_layers.py", 2)
