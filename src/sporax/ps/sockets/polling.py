"""Which sockets can be read or written: epoll, or what a system has in its place.

Linux's epoll is asked directly, since `selectors` makes a key and a list for each event. Systems without it, such as macOS, have
`SelectorPoll` with the part of its interface that is used here.
"""

from __future__ import annotations

import select
import selectors
import socket

READ, WRITE = 1, 4  # epoll's numbers


class SelectorPoll:
    """What is used of epoll, by means of `selectors`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        """Readable when `poll` would give something."""
        return int(self._selector.fileno())

    def register(self, place: int | socket.socket, events: int) -> None:
        """Watch a descriptor."""
        self._selector.register(place, _selected(events))

    def modify(self, descriptor: int, events: int) -> None:
        """Watch it for something else."""
        self._selector.modify(descriptor, _selected(events))

    def unregister(self, descriptor: int) -> None:
        """Watch it no more."""
        self._selector.unregister(descriptor)

    def poll(self, seconds: float, most: int) -> list[tuple[int, int]]:
        """Descriptors with what they are ready for, within so many seconds."""
        ready = self._selector.select(seconds)[:most]
        return [(key.fd, _polled(events)) for key, events in ready]

    def close(self) -> None:
        """Watch nothing any more."""
        self._selector.close()


def _selected(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


def _polled(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


Poll = select.epoll if hasattr(select, "epoll") else SelectorPoll
