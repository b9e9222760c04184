"""Layers of `mint` that need the other ranks."""


def test_shared_statistics(check_in_turn):
    check_in_turn("mint_layers.py")
