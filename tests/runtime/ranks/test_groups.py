"""Named groups: who is in them, and what names and ranks are refused."""

import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.runtime.ranks import groups
from sporax.runtime.ranks.groups import Group


def test_before_init_the_group_of_all_ranks_has_one_member():
    assert groups.find(None) == Group("hccl_world_group", (0,))
    with pytest.raises(
        SporaxRuntimeError, match=r"^For 'create_group', the ranks must have been joined: call init\(\) first\.$"
    ):
        groups.create("pair", [0])


def test_a_group_is_found_by_its_name_until_it_is_destroyed(join):
    join(rank=3)
    assert groups.create("odd", [3, 1]) == groups.create("odd", [3, 1]) == groups.find("odd")
    assert (groups.find("odd").size, groups.find("odd").position()) == (2, 0)
    groups.destroy("odd")
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'group', 'group' must be one of \['hccl_world_group'\], but got 'odd'\. Create it first",
    ):
        groups.find("odd")


@pytest.mark.parametrize("name", groups.WORLD_GROUPS)
def test_the_group_of_all_ranks_has_three_names_and_stays(join, name):
    join(rank=5)
    assert groups.find(name) == Group(name, tuple(range(8)))
    with pytest.raises(SporaxValueError, match=f"the group of all ranks cannot be destroyed, but got '{name}'"):
        groups.destroy(name)


def test_a_rank_outside_of_a_group_is_notified_which_ranks_it_has(join):
    join(rank=2)
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'AllReduce', this rank must be a member of group 'odd', which has the ranks \[3, 1\], but this is rank 2\.$",
    ):
        groups.create("odd", [3, 1]).position("AllReduce")


@pytest.mark.parametrize(
    ("name", "ranks", "error", "words"),
    [
        (3, [0], SporaxTypeError, "'group' must be a non-empty string, but got 3"),
        ("g", (0, 1), SporaxTypeError, r"'rank_ids' must be a list of ints, but got \(0, 1\)"),
        ("g", [True], SporaxTypeError, r"'rank_ids' must be a list of ints, but got \[True\]"),
        ("g", [1, 1], SporaxValueError, r"'rank_ids' must hold distinct ranks, but got \[1, 1\]"),
        ("g", [0, 8], SporaxRuntimeError, r"'rank_ids' must be in \[0, 8\), the ranks of the job, but got \[8\]"),
        ("pair", [1, 0], SporaxValueError, r"group 'pair' exists with ranks \[0, 1\], but got \[1, 0\]"),
    ],
)
def test_names_and_ranks_that_make_no_group_are_refused(join, name, ranks, error, words):
    join()
    groups.create("pair", [0, 1])
    with pytest.raises(error, match=f"^For 'create_group', {words}"):
        groups.create(name, ranks)
    assert groups.find("pair").ranks == (0, 1)
