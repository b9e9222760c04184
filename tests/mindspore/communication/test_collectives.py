"""Collectives, messages and their derivatives on real ranks. What is checked stands in `programs/`."""

import pytest


@pytest.mark.parametrize("num_ranks", [pytest.param(2, marks=pytest.mark.soak), 4])
def test_every_collective_agrees_with_numpy(check_ranks, num_ranks):
    check_ranks("collectives.py", num_ranks)


@pytest.mark.full
def test_derivatives_follow_mindspores_rules(check_ranks):
    check_ranks("derivatives.py", 3)


def test_messages_handles_objects_groups_and_refusals(check_in_turn):
    check_in_turn("messages.py")
