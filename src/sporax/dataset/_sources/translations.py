"""Lines of text and their translations: Multi30k, and the talks of IWSLT."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sporax.dataset import _checks
from sporax.dataset._sources.folder import checked_usage
from sporax.dataset._sources.reading import existing, lines, read_text
from sporax.dataset._sources.text import FileDataset, FileTable, Shuffle
from sporax.dataset._sources.texts import Columns
from sporax.dataset._tables import Table
from sporax.ir.errors import SporaxRuntimeError, SporaxValueError


def _checked_pair(where: str, pair: object, allowed: Sequence[tuple[str, str]], default: int) -> tuple[str, str]:
    if pair is None:
        return allowed[default]
    if not isinstance(pair, (list, tuple)):
        raise _checks.type_error(where, "language_pair", "a list or tuple of two languages", pair)
    if tuple(pair) not in allowed:
        raise SporaxValueError(f"For '{where}', 'language_pair' must be one of {list(allowed)}, but got {pair!r}.")
    return str(pair[0]), str(pair[1])


def _translations(
    where: str, pairs: Sequence[tuple[Path, Path]], read: Callable[[str, Path], list[str]] | None = None
) -> Table:
    """The lines of files and of their translations."""
    others = dict(pairs)
    read = read or (lambda where, path: [line for _, line in lines(where, path) if line])

    def parse(path: Path) -> Columns:
        texts, translations = read(where, existing(where, path)), read(where, existing(where, others[path]))
        if len(texts) != len(translations):
            raise SporaxRuntimeError(
                f"For '{where}', {str(path)!r} and {str(others[path])!r} must have equally many lines, but have "
                f"{len(texts)} and {len(translations)}."
            )
        return {"text": texts, "translation": translations}

    return FileTable(where, [path for path, _ in pairs], parse)


_MULTI30K = {"train": "training/train", "valid": "validation/val", "test": "mmt16_task1_test/test"}


class Multi30kDataset(FileDataset):
    """Multi30k: lines in English and German.

    Columns: `text`, `translation` () str.

    Args:
        dataset_dir: folder that holds training, validation and mmt16_task1_test.
        usage: "train", "test", "valid" or "all" (the default).
        language_pair: ["en", "de"] (the default) or ["de", "en"].
        num_samples: see PartsDataset, like all further arguments.
        num_parallel_workers: see PartsDataset.
        shuffle: see PartsDataset.
        num_shards: see PartsDataset.
        shard_id: see PartsDataset.
        cache: see PartsDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        language_pair: Sequence[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "Multi30kDataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train", "test", "valid", "all"))
        source, target = _checked_pair(where, language_pair, (("en", "de"), ("de", "en")), 0)
        stems = _MULTI30K.values() if part == "all" else (_MULTI30K[part],)
        pairs = [(folder / f"{stem}.{source}", folder / f"{stem}.{target}") for stem in stems]
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        super().__init__(where, ("text", "translation"), lambda: _translations(where, pairs), *arguments)


_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL)
_SETS = ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014")


def _talks(where: str, path: Path) -> list[str]:
    """The sentences of talks: plain lines between marked ones, or the segments of an XML file."""
    if path.suffix == ".xml":
        found = [text.strip() for text in _SEGMENT.findall(read_text(where, path))]
        if not found:
            raise SporaxRuntimeError(f"For '{where}', {str(path)!r} must hold <seg> elements, but there are none.")
        return found
    return [line for _, line in lines(where, path) if line and not line.startswith("<")]


def _talk_files(place: Path, prefix: str, pair: tuple[str, str], sets: Sequence[str]) -> list[tuple[Path, Path]]:
    """Files of both languages; the set "train" has a name of its own."""
    joined = "-".join(pair)

    def path(name: str, language: str) -> Path:
        file = f"train.tags.{joined}.{language}" if name == "train" else f"{prefix}.{name}.{joined}.{language}.xml"
        return place / file

    return [(path(name, pair[0]), path(name, pair[1])) for name in sets]


_PAIRS_2016 = (
    *(("en", other) for other in ("ar", "cs", "de", "fr")),
    *((other, "en") for other in ("ar", "cs", "de", "fr")),
)


class IWSLT2016Dataset(FileDataset):
    """IWSLT 2016: talks and their translations.

    Columns: `text`, `translation` () str.

    Args:
        dataset_dir: folder that holds texts/{source}/{target}/{source}-{target}.
        usage: "train", "valid", "test" or "all" (the default).
        language_pair: English with Arabic, Czech, German or French, either way; ("de", "en") by default.
        valid_set: what is read for "valid", as "tst2013" (the default).
        test_set: what is read for "test", as "tst2014" (the default).
        num_samples: see PartsDataset, like all further arguments.
        shuffle: see PartsDataset.
        num_shards: see PartsDataset.
        shard_id: see PartsDataset.
        num_parallel_workers: see PartsDataset.
        cache: see PartsDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        language_pair: Sequence[str] | None = None,
        valid_set: str | None = None,
        test_set: str | None = None,
        num_samples: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        num_parallel_workers: int | None = None,
        cache: None = None,
    ) -> None:
        where = "IWSLT2016Dataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train", "valid", "test", "all"))
        pair = _checked_pair(where, language_pair, _PAIRS_2016, _PAIRS_2016.index(("de", "en")))
        sets = {
            "train": "train",
            "valid": "tst2013" if valid_set is None else _checks.check_choice(where, "valid_set", valid_set, _SETS),
            "test": "tst2014" if test_set is None else _checks.check_choice(where, "test_set", test_set, _SETS),
        }
        place = folder / "texts" / pair[0] / pair[1] / "-".join(pair)
        chosen = list(sets.values()) if part == "all" else [sets[part]]
        files = _talk_files(place, "IWSLT16.TED", pair, chosen)
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        super().__init__(where, ("text", "translation"), lambda: _translations(where, files, _talks), *arguments)


_LANGUAGES_2017 = ("en", "nl", "de", "it", "ro")
_PAIRS_2017 = tuple((first, second) for first in _LANGUAGES_2017 for second in _LANGUAGES_2017 if first != second)


class IWSLT2017Dataset(FileDataset):
    """IWSLT 2017: talks and their translations.

    Columns: `text`, `translation` () str.

    Args:
        dataset_dir: folder that holds texts/DeEnItNlRo/DeEnItNlRo/DeEnItNlRo-DeEnItNlRo.
        usage: "train", "valid", "test" or "all" (the default).
        language_pair: two of "en", "nl", "de", "it" and "ro"; ("de", "en") by default.
        num_samples: see PartsDataset, like all further arguments.
        shuffle: see PartsDataset.
        num_shards: see PartsDataset.
        shard_id: see PartsDataset.
        num_parallel_workers: see PartsDataset.
        cache: see PartsDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        language_pair: Sequence[str] | None = None,
        num_samples: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        num_parallel_workers: int | None = None,
        cache: None = None,
    ) -> None:
        where = "IWSLT2017Dataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train", "valid", "test", "all"))
        pair = _checked_pair(where, language_pair, _PAIRS_2017, _PAIRS_2017.index(("de", "en")))
        sets = {"train": "train", "valid": "dev2010", "test": "tst2010"}
        place = folder / "texts" / "DeEnItNlRo" / "DeEnItNlRo" / "DeEnItNlRo-DeEnItNlRo"
        files = _talk_files(place, "IWSLT17.TED", pair, list(sets.values()) if part == "all" else [sets[part]])
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        super().__init__(where, ("text", "translation"), lambda: _translations(where, files, _talks), *arguments)
