"""The switch of gradients: on at first, off until it is turned again, and each thread has its own."""

from threading import Thread

from sporax.mindspore.common import gradient_hooks


def test_gradients_flow_until_they_are_turned_off():
    assert gradient_hooks.is_on()
    gradient_hooks.turn(False)
    try:
        assert not gradient_hooks.is_on()
    finally:
        gradient_hooks.turn(True)
    assert gradient_hooks.is_on()


def test_other_threads_have_switches_of_their_own():
    seen = []
    gradient_hooks.turn(False)
    try:
        thread = Thread(target=lambda: seen.append(gradient_hooks.is_on()))
        thread.start()
        thread.join()
    finally:
        gradient_hooks.turn(True)
    assert seen == [True]
