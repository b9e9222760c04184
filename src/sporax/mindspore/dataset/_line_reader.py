"""`LineReader`: lines of a large file in any order."""

from __future__ import annotations

import itertools
import os
from typing import BinaryIO

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset._checks import check_int


class LineReader:
    """Lines of a file (UTF-8) by number; memory holds only where they begin.

    Args:
        filename: the file.

    Raises:
        SporaxTypeError: `filename` is no string.
        SporaxRuntimeError: there is no such file.
    """

    def __init__(self, filename: str) -> None:
        self._file: BinaryIO | None = None
        if not isinstance(filename, str):
            raise SporaxTypeError(f"For 'LineReader', path: {filename} is not string.")
        if not os.path.isfile(filename):
            fault = "is not a regular file" if os.path.exists(filename) else "does not exist"
            raise SporaxRuntimeError(f"For 'LineReader', The input file [{filename}] {fault}.")
        self.filename = os.path.realpath(filename)
        with open(self.filename, "rb") as file:
            self.offsets = [0, *itertools.accumulate(map(len, file))][:-1]

    def readline(self, line: int) -> str:
        """A line without its end; the first is number 1."""
        number = check_int("LineReader", "line", line, 1, len(self.offsets))
        self._file = self._file or open(self.filename, "rb")  # noqa: SIM115 (`close` closes it)
        self._file.seek(self.offsets[number - 1])
        return self._file.readline().decode().rstrip("\r\n")

    def len(self) -> int:
        """The number of lines."""
        return len(self.offsets)

    def close(self) -> None:
        """Close the file; the next `readline` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getitem__(self, line: int) -> str:
        return self.readline(line)

    def __len__(self) -> int:
        return len(self.offsets)

    def __del__(self) -> None:
        self.close()
