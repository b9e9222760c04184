"""The arguments that constructors of data sets share; a row of the table (`Format`) is put together from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._cache import DatasetCache
from sporax.mindspore.dataset._sources.format import REQUIRED, Argument, Check
from sporax.mindspore.dataset._sources.reading import find_files
from sporax.mindspore.dataset.samplers import Shuffle


def folder(doc: str) -> Argument:
    """`dataset_dir`, an existing folder."""
    return Argument("dataset_dir", str, doc, check=lambda where, _, value: _checks.directory(where, value))


def file(name: str, doc: str) -> Argument:
    """An existing file."""
    return Argument(name, str, doc, check=_checks.file)


def with_files(names: Callable[..., Iterable[str]]) -> Callable[..., tuple[Any, ...]]:
    """`prepare` of a `Format` whose files MindSpore looks for at once; `names` gets what follows the folder."""

    def prepare(where: str, folder: Path, *values: Any) -> tuple[Any, ...]:
        for name in names(*values):
            _checks.file(where, "dataset_dir", str(folder / name))
        return folder, *values

    return prepare


def dataset_files(pattern: str) -> Argument:
    """`dataset_files`, text files."""
    doc = f'a file, a pattern such as "{pattern}", or a list of them.'
    return Argument("dataset_files", str | list[str], doc, check=lambda where, _, value: find_files(where, value))


def usage(*choices: str, doc: str = "") -> Argument:
    """`usage`, the part to read: "all" by default where it is one of `choices`, else the first."""
    return choice("usage", *choices, doc=doc, missing="all" if "all" in choices else "")


def choice(
    name: str, *choices: str, doc: str = "", default: Any = None, missing: str = "", words: str = ""
) -> Argument:
    """One of a few strings.

    Args:
        name: of the argument.
        choices: the strings.
        doc: the strings by default.
        default: MindSpore's default, or REQUIRED.
        missing: what None means where it is the default; the first by default.
        words: MindSpore's about another string, with {} for it, where they are not the usual ones.
    """
    missing = missing or choices[0]
    doc = doc or f"{quoted(choices)}{'' if default is REQUIRED else f'; {default or missing!r} by default'}."

    def check(where: str, name: str, value: object) -> str:
        if value is None and default is None:
            return missing
        if words and isinstance(value, str) and value not in choices:
            raise _checks.in_words(SporaxValueError, where, words.format(value))
        return _checks.choice(where, name, value, choices)

    return Argument(name, str | None if default is None else str, doc, default, check)


def quoted(choices: tuple[str, ...]) -> str:
    """``"a", "b" or "c"``."""
    *first, last = (f'"{text}"' for text in choices)
    return f"{', '.join(first)} or {last}" if first else last


def flag(name: str, default: bool, doc: str) -> Argument:
    """True or False."""
    return Argument(name, bool, doc, default, _checks.boolean)


def text(name: str, default: str, doc: str) -> Argument:
    """Any string."""
    return Argument(name, str, doc, default, _checks.text)


def integer(name: str, default: int, doc: str, low: int = -_checks.INT32_MAX) -> Argument:
    """A whole number of 32 bits, at least `low`."""
    return Argument(name, int, doc, default, functools.partial(_checks.integer, low=low, high=_checks.INT32_MAX))


def optional(name: str, annotation: Any, doc: str, check: Check) -> Argument:
    """An argument that is checked unless it is None, the default."""

    def check_value(where: str, name: str, value: object) -> Any:
        return None if value is None else check(where, name, value)

    return Argument(name, annotation | None, doc, None, check_value)


def classes(doc: str) -> Argument:
    """`class_indexing`: class -> label."""
    return optional("class_indexing", dict[str, int], doc, _class_numbers)


def _class_numbers(where: str, name: str, value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise _checks.type_error(where, name, "a dict of name -> int", value)
    return {
        _checks.text(where, name, kind): _checks.integer(where, f"{name}[{kind!r}]", label)
        for kind, label in value.items()
    }


EXTRA_METADATA = flag(
    "extra_metadata", False, "add the column `_meta-filename` () str, which iterators give once it was renamed."
)
EXTENSIONS = optional(
    "extensions",
    list[str],
    'only files with these endings, such as [".jpg", ".png"]; all files by default.',
    _checks.names,
)

_PIXELS = "pixels (H, W, 3) uint8 instead of the bytes (n,) uint8 of the image files (needs Pillow)."
DECODE = flag("decode", False, _PIXELS)
#: Some constructors have None as the default, which means False.
DECODE_OR_NONE = Argument(
    "decode",
    bool | None,
    _PIXELS,
    None,
    lambda where, name, value: value is not None and _checks.boolean(where, name, value),
)

# How rows are sampled: no checks here, see `FormatDataset` and `FileDataset`.

NUM_SAMPLES = Argument("num_samples", int | None, "at most this many rows.", None)
WORKERS = Argument("num_parallel_workers", int | None, "threads that prepare rows.", None)
ONE_WORKER = Argument("num_parallel_workers", int, "threads that prepare rows.", 1)
SHUFFLE = Argument("shuffle", bool | None, "shuffle each epoch in another order; the default.", None)
SAMPLER = Argument("sampler", Any, "a sampler or row numbers, instead of `shuffle`, `num_samples` and sharding.", None)
NUM_SHARDS = Argument("num_shards", int | None, "number of ranks that share the rows.", None)
SHARD_ID = Argument("shard_id", int | None, "this rank.", None)
CACHE = Argument("cache", DatasetCache | None, "keeps the rows for the next epochs.", None)
DECRYPT = Argument(
    "decrypt", Callable[[str], bytes] | None, "gives the content of an encrypted image file, whose path it gets.", None
)

#: Without `decode`, with it, and with it where MindSpore's constructor has no `cache`.
SAMPLED = (NUM_SAMPLES, WORKERS, SHUFFLE, SAMPLER, NUM_SHARDS, SHARD_ID, CACHE)
SAMPLED_IMAGES = (NUM_SAMPLES, WORKERS, SHUFFLE, DECODE, SAMPLER, NUM_SHARDS, SHARD_ID, CACHE)
SAMPLED_UNCACHED = (NUM_SAMPLES, ONE_WORKER, SHUFFLE, DECODE, SAMPLER, NUM_SHARDS, SHARD_ID)


def in_folder(doc: str, *own: Argument, sampled: tuple[Argument, ...] = SAMPLED) -> tuple[Argument, ...]:
    """`folder`, arguments of the format's own, and how its rows are sampled."""
    return folder(doc), *own, *sampled


images_in = functools.partial(in_folder, sampled=SAMPLED_IMAGES)


def text_shuffle(annotation: Any = bool | Shuffle, default: Any = Shuffle.GLOBAL) -> Argument:
    """`shuffle` of text files."""
    return Argument("shuffle", annotation, "True or Shuffle.GLOBAL (the default), Shuffle.FILES, or False.", default)


TEXT_SHUFFLE = text_shuffle()
NEIGHBORING_SHARDS = Argument(
    "num_shards", int | None, "number of ranks that share the rows; each reads neighboring rows.", None
)

#: The arguments of text files; a few constructors have the number of workers further back.
SAMPLED_FILES = (NUM_SAMPLES, WORKERS, TEXT_SHUFFLE, NEIGHBORING_SHARDS, SHARD_ID, CACHE)
SAMPLED_FILES_LATER = (NUM_SAMPLES, TEXT_SHUFFLE, NEIGHBORING_SHARDS, SHARD_ID, WORKERS, CACHE)


def replaced(arguments: tuple[Argument, ...], *others: Argument) -> tuple[Argument, ...]:
    """The arguments with `others` in the places of those of the same names."""
    by_name = {argument.name: argument for argument in others}
    return tuple(by_name.get(argument.name, argument) for argument in arguments)
