"""Loops that get nowhere are told from work, by a thread that looks at the main thread."""

import os
import threading
import time

import numpy as np
import pytest

from sporax.cluster import main_thread

SEEN: dict[str, float] = {}


class Watch(threading.Thread):
    """Looks at the main thread while that does something."""

    def run(self) -> None:
        circles = main_thread.Circles()
        for _ in range(6):
            SEEN["seconds"] = circles.look()  # not an attribute, which the main thread would be seen to hold
            time.sleep(0.1)


class Counter:
    number = 0

    def count(self) -> None:
        self.number += 1


@pytest.fixture
def watch() -> Watch:
    SEEN.clear()
    thread = Watch(daemon=True)
    thread.start()
    return thread


def ask() -> bool:
    return os.path.exists("/no/such/file")


def test_a_loop_that_only_asks(watch: Watch):
    while watch.is_alive():
        pass
    assert SEEN["seconds"] > 0.4


def test_a_loop_of_calls(watch: Watch):
    while watch.is_alive():
        ask()
    assert SEEN["seconds"] > 0.4


def test_a_loop_that_counts(watch: Watch):
    number = 0
    while watch.is_alive():
        number += 1
    assert SEEN["seconds"] < 0.4


def test_a_loop_that_changes_an_object(watch: Watch):
    counter = Counter()
    while watch.is_alive():
        counter.count()
    assert SEEN["seconds"] < 0.4


def test_a_loop_that_works_off_a_list(watch: Watch):
    todo = list(range(10**7))
    while watch.is_alive() and todo:
        todo.pop()
    assert SEEN["seconds"] < 0.4


def test_one_long_call(watch: Watch):
    np.linalg.svd(np.random.default_rng(0).random((700, 700)))
    watch.join()  # which is a long call too
    assert SEEN["seconds"] == 0


def test_where_the_main_thread_is():
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend([main_thread.is_inside(), main_thread.stack()]))
    thread.start()
    thread.join()
    assert found[0] is False
    assert "test_where_the_main_thread_is" in str(found[1])
