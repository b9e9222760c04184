import pytest

import sporax.mindspore as ms
from sporax.mindspore.parallel import _utils


@pytest.fixture(autouse=True)
def _context():
    ms.reset_auto_parallel_context()
    yield
    ms.reset_auto_parallel_context()


def test_what_holds_by_itself():
    assert _utils._get_parallel_mode() == "stand_alone"
    assert (_utils._get_device_num(), _utils._get_stage_device_num(), _utils._get_global_rank()) == (1, 1, 0)
    assert not _utils._get_gradients_mean()
    assert not _utils._is_in_auto_parallel_mode()


def test_what_was_set():
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel", device_num=8, global_rank=3, gradients_mean=True, full_batch=True
    )
    assert _utils._is_in_auto_parallel_mode()
    assert not _utils._is_in_data_parallel_mode()
    assert not _utils._is_in_hybrid_parallel_mode()
    assert (_utils._get_device_num(), _utils._get_global_rank()) == (8, 3)
    assert _utils._get_gradients_mean()
    assert _utils._get_full_batch()
    ms.set_auto_parallel_context(parallel_mode="auto_parallel", search_mode="sharding_propagation")
    assert _utils._is_sharding_propagation()


def test_what_the_job_says():
    ms.communication.init()
    assert _utils._get_device_num() == ms.communication.get_group_size()
    assert _utils._get_global_rank() == ms.communication.get_rank()
