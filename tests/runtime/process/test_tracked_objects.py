"""Objects are found though a program froze them."""

import gc

from sporax.runtime.process.host_allocator import tracked_objects


class Kept:
    pass


def test_frozen_objects_are_found():
    kept = Kept()
    gc.freeze()
    assert not any(other is kept for other in gc.get_objects())
    assert any(other is kept for other in tracked_objects())
    assert gc.get_freeze_count() == 0
