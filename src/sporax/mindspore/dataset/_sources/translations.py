"""Lines of text and their translations: Multi30k, and the talks of IWSLT."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._sources import arguments as arg
from sporax.mindspore.dataset._sources.columns import Columns, FileTable
from sporax.mindspore.dataset._sources.format import Argument, FileDataset
from sporax.mindspore.dataset._sources.reading import existing, lines, read_text
from sporax.mindspore.dataset._streams import Table
from sporax.mindspore.dataset.samplers import Shuffle


def _language_pair(doc: str, allowed: Sequence[tuple[str, str]], default: tuple[str, str]) -> Argument:
    """`language_pair`, one of those that are `allowed`."""

    def check(where: str, name: str, pair: object) -> tuple[str, str]:
        if pair is None:
            return default
        if not isinstance(pair, (list, tuple)):
            raise _checks.type_error(where, name, "a list or tuple of two languages", pair)
        if tuple(pair) not in allowed:
            raise SporaxValueError(f"For '{where}', '{name}' must be one of {list(allowed)}, but got {pair!r}.")
        return str(pair[0]), str(pair[1])

    return Argument("language_pair", Sequence[str] | None, doc, None, check)


def _translations(
    where: str, pairs: Sequence[tuple[Path, Path]], read: Callable[[str, Path], list[str]] | None = None
) -> Table:
    """The lines of files and of their translations."""
    # The table knows one path per part; the other is found by it.
    others = dict(pairs)
    # Empty lines count on neither side.
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


def _multi30k(where: str, folder: Path, part: str, languages: tuple[str, str]) -> Table:
    stems = _MULTI30K.values() if part == "all" else (_MULTI30K[part],)
    source, target = languages
    return _translations(where, [(folder / f"{stem}.{source}", folder / f"{stem}.{target}") for stem in stems])


class Multi30kDataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds training, validation and mmt16_task1_test."),
        arg.usage("train", "test", "valid", "all"),
        _language_pair('["en", "de"] (the default) or ["de", "en"].', (("en", "de"), ("de", "en")), ("en", "de")),
        *arg.replaced(arg.SAMPLED_FILES, arg.text_shuffle(bool | Shuffle | None, None)),
    ),
    columns=("text", "translation"),
    read=_multi30k,
):
    """Multi30k: lines in English and German.

    Columns: `text`, `translation` () str.
    """


_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL)
_SETS = ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014")


def _talks(where: str, path: Path) -> list[str]:
    """The sentences of talks: plain lines between marked ones, or the segments of an XML file."""
    # Test sets are XML, training sets text with a few marked lines.
    if path.suffix == ".xml":
        segments = [text.strip() for text in _SEGMENT.findall(read_text(where, path))]
        if not segments:
            raise SporaxRuntimeError(f"For '{where}', {str(path)!r} must hold <seg> elements, but there are none.")
        return segments
    return [line for _, line in lines(where, path) if line and not line.startswith("<")]


def _talk_files(place: Path, prefix: str, pair: tuple[str, str], sets: Sequence[str]) -> list[tuple[Path, Path]]:
    """Files of both languages; the set "train" has a name of its own."""
    joined = "-".join(pair)

    def path(name: str, language: str) -> Path:
        # Only training files have the languages at the end without a suffix.
        file = f"train.tags.{joined}.{language}" if name == "train" else f"{prefix}.{name}.{joined}.{language}.xml"
        return place / file

    return [(path(name, pair[0]), path(name, pair[1])) for name in sets]


_PAIRS_2016 = (
    *(("en", other) for other in ("ar", "cs", "de", "fr")),
    *((other, "en") for other in ("ar", "cs", "de", "fr")),
)


def _iwslt2016(
    where: str, folder: Path, part: str, languages: tuple[str, str], valid_set: str | None, test_set: str | None
) -> Table:
    sets = {"train": "train", "valid": valid_set or "tst2013", "test": test_set or "tst2014"}
    place = folder / "texts" / languages[0] / languages[1] / "-".join(languages)
    chosen = list(sets.values()) if part == "all" else [sets[part]]
    return _translations(where, _talk_files(place, "IWSLT16.TED", languages, chosen), _talks)


def _talk_set(name: str, doc: str) -> Argument:
    return arg.optional(name, str, doc, functools.partial(_checks.choice, choices=_SETS))


class IWSLT2016Dataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds texts/{source}/{target}/{source}-{target}."),
        arg.usage("train", "test", "valid", "all"),
        _language_pair(
            'English with Arabic, Czech, German or French, either way; ("de", "en") by default.',
            _PAIRS_2016,
            ("de", "en"),
        ),
        _talk_set("valid_set", 'what is read for "valid", as "tst2013" (the default).'),
        _talk_set("test_set", 'what is read for "test", as "tst2014" (the default).'),
        *arg.SAMPLED_FILES_LATER,
    ),
    columns=("text", "translation"),
    read=_iwslt2016,
):
    """IWSLT 2016: talks and their translations.

    Columns: `text`, `translation` () str.
    """


_LANGUAGES_2017 = ("en", "nl", "de", "it", "ro")
_PAIRS_2017 = tuple((first, second) for first in _LANGUAGES_2017 for second in _LANGUAGES_2017 if first != second)


def _iwslt2017(where: str, folder: Path, part: str, languages: tuple[str, str]) -> Table:
    sets = {"train": "train", "valid": "dev2010", "test": "tst2010"}
    place = folder / "texts" / "DeEnItNlRo" / "DeEnItNlRo" / "DeEnItNlRo-DeEnItNlRo"
    chosen = list(sets.values()) if part == "all" else [sets[part]]
    return _translations(where, _talk_files(place, "IWSLT17.TED", languages, chosen), _talks)


class IWSLT2017Dataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds texts/DeEnItNlRo/DeEnItNlRo/DeEnItNlRo-DeEnItNlRo."),
        arg.usage("train", "test", "valid", "all"),
        _language_pair('two of "en", "nl", "de", "it" and "ro"; ("de", "en") by default.', _PAIRS_2017, ("de", "en")),
        *arg.SAMPLED_FILES_LATER,
    ),
    columns=("text", "translation"),
    read=_iwslt2017,
):
    """IWSLT 2017: talks and their translations.

    Columns: `text`, `translation` () str.
    """
