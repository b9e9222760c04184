"""The switch of gradients: on at first, off until it is turned again, and each thread has its own."""

from threading import Thread

from sporax.runtime import gradient_switch


def test_gradients_flow_until_they_are_turned_off():
    assert gradient_switch.is_on()
    gradient_switch.turn(False)
    try:
        assert not gradient_switch.is_on()
    finally:
        gradient_switch.turn(True)
    assert gradient_switch.is_on()


def test_other_threads_have_switches_of_their_own():
    seen = []
    gradient_switch.turn(False)
    try:
        thread = Thread(target=lambda: seen.append(gradient_switch.is_on()))
        thread.start()
        thread.join()
    finally:
        gradient_switch.turn(True)
    assert seen == [True]
