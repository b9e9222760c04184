"""`MindPage`: rows of MindRecord files that share the value of an index field, some at a time.

The index says where the rows of a value are, so only these are read.

`FileReader`: the rows of MindRecord files, one after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError
from sporax.mindspore.mindrecord._schema import MRMDefineCategoryError, ParamTypeError, ParamValueError, Row
from sporax.mindspore.mindrecord._shard import Shard, open_shards
from sporax.mindspore.mindrecord._write import check_file_name


def check_consumers(where: str, count: object) -> None:
    """A number of reading threads.

    Raises:
        ParamValueError: it is no int, or less than 1.
    """
    fault = ""
    if not isinstance(count, int):
        fault = " is None." if count is None else " is not int."
    elif count < 1:
        # The upper limit is only named: MindSpore refuses more threads than cores, but no thread is started here.
        fault = f": {count} should between 1 and {os.cpu_count() or 1}."
    if fault:
        raise ParamValueError(f"For '{where}', Parameter num_consumer{fault} Got {count!r}.")


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
            raise For("FileReader").state_error(f"a column must be one of the fields {fields}", repr(unknown[0]))
        # One stream, as in MindSpore: a second `get_next` goes on where the first one stopped.
        self._rows: Iterator[tuple[Shard, int]] = (
            (shard, number) for shard in self._shards for number in range(shard.size)
        )

    def get_next(self) -> Iterator[Row]:
        """The rows that were not read yet, as dicts: numbers, str, bytes and arrays; none after `close`."""
        while place := next(self._rows, None):
            shard, number = place
            yield shard.read(number, self._columns)

    def close(self) -> None:
        """Close the files. Calling it again changes nothing."""
        self._rows = iter(())
        for shard in self._shards:
            shard.close()

    def schema(self) -> dict[str, Any]:
        """The schema, as it was given to the writer."""
        return self._shards[0].header.schema.content()

    def len(self) -> int:
        """The number of rows."""
        return sum(shard.size for shard in self._shards)


class MindPage:
    """Reads the rows of one category, page by page.

    Args:
        file_name: a file, which stands for all files written together with it; or a list of files.
        num_consumer: checked; rows are read by one thread.

    Raises:
        ParamValueError: an argument is not valid.
        MRMOpenError: a file is missing or not a MindRecord file.

    Example:
        >>> pages = MindPage("train.mindrecord")
        >>> pages.category_field = "label"
        >>> rows = pages.read_at_page_by_name("3", page=0, num_row=10)
    """

    def __init__(self, file_name: str | list[str], num_consumer: int = 4) -> None:
        for name in file_name if isinstance(file_name, list) else [file_name]:
            check_file_name(name)
        # MindSpore reads with so many threads; the check is kept so that scripts fail in the same way.
        check_consumers("MindPage", num_consumer)
        self._shards = open_shards(file_name)
        self._field: str | None = None

    @property
    def candidate_fields(self) -> list[str]:
        """The index fields."""
        return list(self._shards[0].header.index_fields)

    @property
    def category_field(self) -> str | None:
        """The index field that makes the categories."""
        return self._field

    @category_field.setter
    def category_field(self, category_field: str) -> None:
        if not isinstance(category_field, str):
            raise ParamTypeError(f"For 'MindPage', 'category_field' must be a str, but got {category_field!r}.")
        if category_field not in self.candidate_fields:
            raise MRMDefineCategoryError(
                f"For 'MindPage', 'category_field' must be one of {self.candidate_fields}, but got {category_field!r}."
            )
        self._field = category_field

    def read_category_info(self) -> str:
        """JSON text with the number, name and count of each category."""
        counts: dict[Any, int] = {}
        for shard in self._shards:
            # Counted by SQLite, so that no row is read; shards are added up afterwards.
            for value, count in shard.query(f"SELECT {self._column()}, COUNT(*) FROM INDEXES GROUP BY 1 ORDER BY 1"):
                counts[value] = counts.get(value, 0) + count
        # Sorted by value over all shards: a category's number must not depend on the shard it was met in first.
        categories = [{"count": counts[v], "id": i, "name": str(v)} for i, v in enumerate(sorted(counts))]
        return json.dumps({"categories": categories, "key": self._column()}, separators=(",", ":"))

    def read_at_page_by_id(self, category_id: int, page: int, num_row: int) -> list[Row]:
        """Rows `page * num_row` and following of the category with a number.

        Raises:
            ParamValueError: an argument is not valid.
            SporaxRuntimeError: there is no such category.
        """
        # Numbers are places in the list of `read_category_info`, as the user has seen it.
        names = [entry["name"] for entry in json.loads(self.read_category_info())["categories"]]
        _check_number("Category id", category_id, 0)
        _check_number("Page", page, 0)
        _check_number("num_row", num_row, 1)
        if category_id >= len(names):
            raise SporaxRuntimeError(
                f"Invalid data, category_id: {category_id} must be in the range [0, {len(names)}]."
            )
        return self.read_at_page_by_name(names[category_id], page, num_row)

    def read_at_page_by_name(self, category_name: str, page: int, num_row: int) -> list[Row]:
        """Rows `page * num_row` and following of the category with a name.

        Raises:
            ParamValueError: an argument is not valid.
            SporaxRuntimeError: there is no such category.
        """
        if not isinstance(category_name, str):
            raise ParamValueError(f"For 'MindPage', Category name should be str, but got {category_name!r}.")
        _check_number("Page", page, 0)
        _check_number("num_row", num_row, 1)
        column = self._column()
        statement = f"SELECT ROW_ID, {column} FROM INDEXES ORDER BY ROW_ID"
        # A place in the result of ORDER BY ROW_ID is the number under which `Shard.read` knows a row.
        positions = [
            (shard, i)
            for shard in self._shards
            for i, (_, value) in enumerate(shard.query(statement))
            # Names are compared as text, since the public category names are str even for numbers.
            if str(value) == category_name
        ]
        For("MindPage").refuse_state(not positions, f"Invalid data, category_name: {category_name} could not found")
        chosen = positions[page * num_row : (page + 1) * num_row]
        return [shard.read(i, [f.name for f in shard.header.schema.fields]) for shard, i in chosen]

    def _column(self) -> str:
        For("MindPage").refuse_state(self._field is None, "'category_field' must be set first")
        # In the index a column is called after its field and the number of its schema, and files have one schema.
        return f"{self._field}_0"


def _check_number(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or value < low:
        words = f"{name} should be int and greater than {'' if low else 'or equal to '}0"
        raise ParamValueError(f"For 'MindPage', {words}, but got {value!r}.")
