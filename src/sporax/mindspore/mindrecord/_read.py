"""`FileReader`: the rows of MindRecord files, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.mindrecord._errors import ParamTypeError, ParamValueError
from sporax.mindspore.mindrecord._schema import Row
from sporax.mindspore.mindrecord._shard import open_shards
from sporax.mindspore.mindrecord._write import check_file_name


def check_consumers(where: str, count: object) -> None:
    """A number of reading threads.

    Raises:
        ParamValueError: it is no int, or less than 1.
    """
    # Only named in the message: MindSpore refuses more threads than cores, but no thread is started here.
    most = os.cpu_count() or 1
    if not isinstance(count, int) or count < 1:
        raise ParamValueError(f"For '{where}', 'num_consumer' must be an int in [1, {most}], but got {count!r}.")


class FileReader:
    """Reads MindRecord files from the beginning.

    Args:
        file_name: a file, which stands for all files written together with it; or a list of files.
        num_consumer: checked; rows are read by one thread, in their stored order.
        columns: only these fields.
        operator: must be None.

    Raises:
        ParamTypeError, ParamValueError: an argument is not valid.
        MRMOpenError: a file is missing or not a MindRecord file.
        SporaxRuntimeError: a column is not in the schema.

    Example:
        >>> reader = FileReader("train.mindrecord")
        >>> for row in reader.get_next():
        ...     print(row["label"])
        >>> reader.close()
    """

    def __init__(
        self, file_name: str | list[str], num_consumer: int = 4, columns: list[str] | None = None, operator: None = None
    ) -> None:
        for name in file_name if isinstance(file_name, list) else [file_name]:
            check_file_name(name)
        check_consumers("FileReader", num_consumer)
        if operator is not None:
            raise ParamValueError(f"For 'FileReader', 'operator' must be None, but got {operator!r}.")
        if columns is not None and not isinstance(columns, list):
            raise ParamTypeError(f"For 'FileReader', 'columns' must be a list, but got {columns!r}.")
        self._shards = open_shards(file_name)
        fields = [field.name for field in self._shards[0].header.schema.fields]
        # An empty list means all fields, as None does.
        self._columns = columns or fields
        unknown = [name for name in self._columns if name not in fields]
        if unknown:
            raise SporaxRuntimeError(
                f"For 'FileReader', a column must be one of the fields {fields}, but got {unknown[0]!r}."
            )

    def get_next(self) -> Iterator[Row]:
        """The rows, as dicts: numbers, str, bytes and arrays."""
        for shard in self._shards:
            for number in range(shard.size):
                yield shard.read(number, self._columns)

    def close(self) -> None:
        """Close the files. Calling it again changes nothing."""
        for shard in self._shards:
            shard.close()

    def schema(self) -> dict[str, Any]:
        """The schema, as it was given to the writer."""
        return self._shards[0].header.schema.content()

    def len(self) -> int:
        """The number of rows."""
        return sum(shard.size for shard in self._shards)
