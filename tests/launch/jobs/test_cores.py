import pytest
from hypothesis import given, strategies as st

from sporax.base.errors import SporaxValueError
from sporax.launch.jobs import cores
from sporax.launch.jobs.cores import Share, computes_on_cpu, memory_prefix, shares, split, thread_limits

EIGHT = tuple(range(8))
TWO_NODES = {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}


def bound(count: int, bind_core=True, bind_numa=False) -> list[tuple[int, ...] | None]:
    return [share.cores for share in shares(count, bind_core, bind_numa, cores=EIGHT, nodes=TWO_NODES)]


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 40))
def test_shares_are_equal_and_disjoint_when_there_are_enough_cores(ids: set[int], count: int):
    pieces = split(sorted(ids), count)
    assert len(pieces) == count
    assert {core for piece in pieces for core in piece} <= ids
    if count <= len(ids):
        assert sum(pieces, ()) == tuple(sorted(ids))
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    else:
        assert {len(piece) for piece in pieces} == {1}


def test_more_ranks_than_cores_take_turns():
    assert split((4, 5), 5) == [(4,), (5,), (4,), (5,), (4,)]


def test_bind_core():
    assert bound(3) == [(0, 1, 2), (3, 4, 5), (6, 7)]
    assert bound(2, bind_core=False) == [None, None]
    assert bound(3, bind_core={0: (7,), 2: (1, 2)}) == [(7,), None, (1, 2)]


def test_bind_numa():
    result = shares(4, True, True, cores=EIGHT, nodes=TWO_NODES)
    assert result == [Share((0, 1), 0), Share((2, 3), 0), Share((4, 5), 1), Share((6, 7), 1)]
    assert bound(2, bind_core=False, bind_numa={0: (1,)}) == [(4, 5, 6, 7), None]


def test_ids_that_are_not_there():
    with pytest.raises(SporaxValueError, match=r"For 'bind_core'.*but got \[9\]"):
        bound(2, bind_core={0: (0, 9)})
    with pytest.raises(SporaxValueError, match=r"For 'bind_numa'.*among \[0, 1\], but got \[2\]"):
        bound(2, bind_numa={0: (2,)})
    with pytest.raises(SporaxValueError, match="each rank must have one node"):
        bound(2, bind_numa={0: (0, 1)})


def test_thread_limits_follow_the_share_and_leave_the_users_choice_alone():
    limits = thread_limits(Share((2, 3, 4)), {"MKL_NUM_THREADS": "9"})
    assert limits == {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    assert thread_limits(Share(), {}) == {}


def test_memory_needs_numactl(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cores.shutil, "which", lambda _: None)
    assert memory_prefix(Share((1,))) == []
    with pytest.raises(SporaxValueError, match="'numactl' must be installed"):
        memory_prefix(Share((1,), 0))
    monkeypatch.setattr(cores.shutil, "which", lambda _: "/bin/numactl")
    assert memory_prefix(Share((1,), 1)) == ["/bin/numactl", "--membind=1"]


def test_where_ranks_compute(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cores, "glob", lambda pattern: ["/dev/nvidia0"] if "nvidia" in pattern else [])
    assert not computes_on_cpu({})
    assert computes_on_cpu({"JAX_PLATFORMS": "cpu"})
    monkeypatch.setattr(cores, "glob", lambda _: [])
    assert computes_on_cpu({})
    assert not computes_on_cpu({"JAX_PLATFORMS": "cuda"})


def test_this_machine():
    available = cores.available_cores()
    assert available
    assert set(available) >= {core for members in cores.numa_nodes(available).values() for core in members}
