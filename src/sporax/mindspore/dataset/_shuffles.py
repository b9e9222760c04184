"""Orders of rows that are MindSpore's for a seed, so that a script sees the batches that it saw there.

MindSpore shuffles with the C++ library it is built with, whose algorithms are public: `std::shuffle` and
`std::uniform_int_distribution` of libstdc++ (bits/stl_algo.h, bits/uniform_int_dist.h), the engines `mt19937`, `mt19937_64` and
`minstd_rand0` of the C++ standard ([rand.predef]). Samplers begin a pass with the seed plus its number and shuffle the order of
the pass before once more; a shuffle buffer goes on with its numbers. So the order of a pass follows from (seed, rows, pass)
alone, and of the latest passes the orders are remembered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Order = NDArray[np.int64]
Engine = Callable[[int], "tuple[Iterator[int], int]"]
"""From a seed: numbers from 0 on, and the largest of them."""

_BLOCK = 4096
"""Numbers that are drawn at a time."""


def mersenne_twister(seed: int) -> np.random.MT19937:
    """The engine of samplers and transforms."""
    bits = np.random.MT19937()
    # A RandomState is seeded as the standard says, a MT19937 alone is not.
    state: Any = np.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)
    bits.state = state
    return bits


def mt19937(seed: int) -> tuple[Iterator[int], int]:
    """The numbers of `mersenne_twister`."""
    bits = mersenne_twister(seed)
    return (number for _ in itertools.count() for number in bits.random_raw(_BLOCK).tolist()), 0xFFFFFFFF


def minstd(seed: int) -> tuple[Iterator[int], int]:
    """The engine of MindRecord files."""

    def numbers() -> Iterator[int]:
        state = seed % 0x7FFFFFFF or 1
        while True:
            state = state * 16807 % 0x7FFFFFFF
            # Its least number is 1.
            yield state - 1

    return numbers(), 0x7FFFFFFD


def mt19937_64(seed: int, skip: int = 0) -> Iterator[int]:
    """The engine of shuffle buffers, after `skip` numbers: Matsumoto and Nishimura's of 64 bits."""
    words = [seed]
    for i in range(1, 312):
        words.append((6364136223846793005 * (words[-1] ^ words[-1] >> 62) + i) & 0xFFFFFFFFFFFFFFFF)
    state = np.array(words, np.uint64)
    for _ in range(skip // 312 + 1):
        state = _next_words(state)
    tempered = _tempered(state).tolist()[skip % 312 :]
    while True:
        yield from tempered
        state = _next_words(state)
        tempered = _tempered(state).tolist()


def _next_words(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    low, one, factor = np.uint64(0x7FFFFFFF), np.uint64(1), np.uint64(0xB5026F5AA96619E9)
    result = np.empty_like(state)

    def twisted(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
        joined = (first & ~low) | (second & low)
        return (joined >> one) ^ ((joined & one) * factor)

    # In two halves, since the second needs words of the first; its last word meets the first new one.
    result[:156] = state[156:] ^ twisted(state[:156], state[1:157])
    result[156:311] = result[:155] ^ twisted(state[156:311], state[157:])
    result[311:] = result[155:156] ^ twisted(state[311:], result[:1])
    return result


def _tempered(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = words ^ ((words >> np.uint64(29)) & np.uint64(0x5555555555555555))
    words = words ^ ((words << np.uint64(17)) & np.uint64(0x71D67FFFEDA60000))
    words = words ^ ((words << np.uint64(37)) & np.uint64(0xFFF7EEE000000000))
    return words ^ (words >> np.uint64(43))


def below(count: int, numbers: Iterator[int], largest: int) -> int:
    """An integer in [0, count): a number of the engine, divided; those that would favor some results are drawn again."""
    scale = largest // count
    while (number := next(numbers)) >= count * scale:
        pass
    return number // scale


def shuffle_in_place(rows: list[int], numbers: Iterator[int], largest: int) -> None:
    """Bring rows into random order (`std::shuffle`)."""
    count = len(rows)
    # Where the engine has numbers enough, one of them gives two places.
    takes_two = count > 0 and largest // count >= count
    place = 1
    while place < count:
        if takes_two and (place > 1 or count % 2):
            first, second = divmod(below((place + 1) * (place + 2), numbers, largest), place + 2)
            rows[place], rows[first] = rows[first], rows[place]
            place += 1
            rows[place], rows[second] = rows[second], rows[place]
        else:
            other = below(place + 1, numbers, largest)
            rows[place], rows[other] = rows[other], rows[place]
        place += 1


Mix = Callable[[list[int], int], None]
"""Brings an order of rows into another one, by a seed."""


def _mix(engine: Engine) -> Mix:
    return lambda rows, seed: shuffle_in_place(rows, *engine(seed))


def _mix_files(sizes: tuple[int, ...]) -> Mix:
    """The places of whole files are exchanged, whatever rows stand there."""
    ends = list(itertools.accumulate(sizes))

    def mix(rows: list[int], seed: int) -> None:
        files = list(range(len(sizes)))
        shuffle_in_place(files, *minstd(seed))
        rows[:] = [row for file in files for row in rows[ends[file] - sizes[file] : ends[file]]]

    return mix


def _mix_in_files(sizes: tuple[int, ...]) -> Mix:
    """The rows at the places of each file are exchanged."""

    def mix(rows: list[int], seed: int) -> None:
        start = 0
        for size in sizes:
            part = rows[start : start + size]
            shuffle_in_place(part, *minstd(seed))
            rows[start : start + size] = part
            start += size

    return mix


_latest: dict[Hashable, tuple[int, list[int]]] = {}
"""The latest pass of some shuffles, and its order."""


def _order_of(key: tuple[Hashable, ...], count: int, index: int, seeds: Callable[[int], int], mix: Mix) -> Order:
    done, rows = _latest.get(key, (-1, []))
    if done > index or done < 0:
        done, rows = -1, list(range(count))
    for number in range(done + 1, index + 1):
        rows = rows.copy()  # other threads may read an earlier pass
        mix(rows, seeds(number))
    if len(_latest) > 8:
        _latest.clear()
    _latest[key] = index, rows
    return np.array(rows, np.int64)


def shuffled(count: int, seed: int, index: int, *, step: int = 1, records: bool = False) -> Order:
    """The order of rows in a pass.

    Args:
        count: of the rows.
        seed: of pass 0.
        index: number of the pass.
        step: what each pass adds to the seed.
        records: by the engine of MindRecord files.
    """
    mix = _mix(minstd if records else mt19937)
    return _order_of((records, count, seed, step), count, index, lambda number: seed + step * number, mix)


def shuffled_by_file(sizes: Sequence[int], seed: int, index: int, *, within: bool) -> Order:
    """As `shuffled`, of MindRecord files of some sizes: `within` each file, or the files."""
    sizes = tuple(sizes)
    mix = _mix_in_files(sizes) if within else _mix_files(sizes)
    return _order_of((sizes, seed, within), sum(sizes), index, lambda number: seed + number, mix)


# Rounding may give 1, for which the standard has the number before it.
_BELOW_ONE = float(np.nextafter(1, 0))


def canonical(first: int, second: int) -> float:
    """A number in [0, 1) of two of the engine (`std::generate_canonical`)."""
    return min((first + second * 2.0**32) / 2.0**64, _BELOW_ONE)


def drawn(bound: int, count: int, seed: int) -> Order:
    """`count` integers in [0, bound), each independent of the others."""
    numbers, largest = mt19937(seed)
    return np.array([below(bound, numbers, largest) for _ in range(count)], np.int64)


def uniform(count: int, seed: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1), of two numbers of the engine each (`std::generate_canonical`)."""
    words = np.array(list(itertools.islice(mt19937(seed)[0], 2 * count)), np.float64).reshape(-1, 2)
    return np.minimum((words[:, 0] + words[:, 1] * 2.0**32) / 2.0**64, _BELOW_ONE)


def picked(sizes: Sequence[int], count: int, seed: int, index: int, *, shuffle: bool) -> list[tuple[int, int]]:
    """`count` members of each class, drawn with replacement: (class, place in it); `shuffle` the classes, once for all passes."""
    classes = list(range(len(sizes)))
    numbers, largest = mt19937(seed)
    if shuffle:
        shuffle_in_place(classes, numbers, largest)
    if index:
        numbers, largest = mt19937(seed + index)
    return [(kind, below(sizes[kind], numbers, largest)) for kind in classes for _ in range(count)]


def through_buffer(rows: Iterator[T], buffer_size: int, numbers: Iterator[int]) -> Iterator[T]:
    """Rows through a shuffle buffer: one of it is given, the last one takes its place, and a new one comes behind."""
    buffer = list(itertools.islice(rows, buffer_size))
    for row in rows:
        place = next(numbers) % len(buffer)
        yield buffer[place]
        buffer[place] = buffer[-1]
        buffer[-1] = row
    while buffer:
        place = next(numbers) % len(buffer)
        yield buffer[place]
        buffer[place] = buffer[-1]
        buffer.pop()


def buffer_order(count: int, buffer_size: int, seed: int, drawn: int) -> Order:
    """The order in which a shuffle buffer gives rows 0 … count-1, after `drawn` numbers, one for each earlier row."""
    numbers = mt19937_64(seed, drawn)
    return np.fromiter(through_buffer(iter(range(count)), buffer_size, numbers), np.int64, count)
