"""The switch of gradients: on at first, off until it is turned again, and each thread has its own."""

from threading import Thread

from sporax.mindspore.common import _gradient_switch


def test_gradients_flow_until_they_are_turned_off():
    assert _gradient_switch.is_on()
    _gradient_switch.turn(False)
    try:
        assert not _gradient_switch.is_on()
    finally:
        _gradient_switch.turn(True)
    assert _gradient_switch.is_on()


def test_other_threads_have_switches_of_their_own():
    seen = []
    _gradient_switch.turn(False)
    try:
        thread = Thread(target=lambda: seen.append(_gradient_switch.is_on()))
        thread.start()
        thread.join()
    finally:
        _gradient_switch.turn(True)
    assert seen == [True]
