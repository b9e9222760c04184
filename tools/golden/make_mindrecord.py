"""MindRecord files of MindSpore's, for the tests; and whether MindSpore reads ours.

Run it where both packages can be run, each in its own interpreter:

    python tools/golden/make_mindrecord.py FOLDER/OURS ours      # with this package: writes files python
    tools/golden/make_mindrecord.py FOLDER/OURS check     # with MindSpore: reads them, compares python
    tools/golden/make_mindrecord.py FOLDER/THEIRS record  # with MindSpore: writes tests/mindspore/dataset/golden_mindrecord.zip
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "mindspore" / "dataset" / "golden_mindrecord.zip"
SCALARS = {name: {"type": name} for name in ("int32", "int64", "float32", "float64", "string")}
EVERYTHING = {
    **SCALARS,
    "bytes": {"type": "bytes"},
    "short": {"type": "int32", "shape": [-1]},
    "long": {"type": "int64", "shape": [-1]},
    "square": {"type": "float32", "shape": [2, 2]},
}
MANY_INTEGERS = [
    [0],
    [-128, 127],
    [-129, 128, 32767],
    [-32769, 32768, 1, 2, 3],
    [2**31 - 1, -(2**31), 5, 6, 7, 8, 9, 0],
    [],
]


def everything(i: int) -> dict[str, Any]:
    """Row number i with each type."""
    return {
        "int32": i - 1,
        "int64": i * 10**12,
        "float32": np.float32(i + 0.1),
        "float64": i / 3,
        "string": "ü" * i,
        "bytes": bytes([i]) * (i + 3),
        "short": np.array(MANY_INTEGERS[i % len(MANY_INTEGERS)], np.int32),
        "long": np.array([2**40, -1, i], np.int64)[: i % 4],
        "square": np.full((2, 2), i, np.float32),
    }


def cases() -> dict[str, tuple[int, dict[str, Any], list[dict[str, Any]], list[str]]]:
    """Name -> number of files, schema, rows, index fields."""
    return {
        "one": (1, EVERYTHING, [everything(i) for i in range(9)], ["string", "int32"]),
        "three": (3, EVERYTHING, [everything(i) for i in range(7)], []),
        "scalars": (1, SCALARS, [{name: everything(i)[name] for name in SCALARS} for i in range(5)], []),
        "blob": (1, {"bytes": {"type": "bytes"}}, [{"bytes": bytes([i]) * 20000} for i in range(4)], []),
        "integers": (1, {"short": EVERYTHING["short"]}, [{"short": everything(i)["short"]} for i in range(6)], []),
        "few": (3, {"int32": {"type": "int32"}}, [{"int32": 7}], []),
    }


def write(folder: Path, writer: Any) -> None:
    """Write the files of all cases with somebody's FileWriter."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (shards, schema, rows, index) in cases().items():
        target = writer(str(folder / f"{name}.mindrecord"), shards, overwrite=True)
        target.set_header_size(1 << 14)
        target.set_page_size(1 << 15)
        target.add_schema(schema, f"the case {name}")
        if index:
            target.add_index(index)
        target.write_raw_data(list(rows))
        target.commit()


def first_file(folder: Path, name: str) -> str:
    """A file of a case."""
    shards = cases()[name][0]
    return str(folder / (f"{name}.mindrecord" + ("0" if shards > 1 else "")))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row that JSON can hold."""
    return {
        name: value.hex() if isinstance(value, bytes) else value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in sorted(row.items())
    }


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def check(folder: Path, reader: Any) -> None:
    """Compare what somebody's FileReader reads with what was written."""
    for name, (_, _, rows, _) in cases().items():
        read = [plain(row) for row in reader(first_file(folder, name)).get_next()]
        written = [plain({key: _python(value) for key, value in row.items()}) for row in rows]
        order = [str(row) for row in written]
        assert len(read) == len(written), (name, len(read), len(written))
        for row, wanted in zip(read, written, strict=True):
            for key, value in wanted.items():
                same = np.allclose(row[key], value) if isinstance(value, float) else row[key] == value
                assert same, (name, key, row[key], value, order)
        print(f"{name}: {len(read)} rows agree")


def record(folder: Path) -> None:
    """Write the golden file, with MindSpore."""
    from mindspore.mindrecord import FileReader, FileWriter

    write(folder, FileWriter)
    rows = {name: [plain(row) for row in FileReader(first_file(folder, name)).get_next()] for name in cases()}
    with zipfile.ZipFile(GOLDEN, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("rows.json"), json.dumps(rows))


if __name__ == "__main__":
    place, action = Path(sys.argv[1]), sys.argv[2]
    if action == "ours":
        from sporax.mindspore.mindrecord import FileWriter

        write(place, FileWriter)
    elif action == "check":
        from mindspore.mindrecord import FileReader

        check(place, FileReader)
    else:
        record(place)
