"""Sound: collections of WAV files (TED-LIUM: SPHERE files), with what is said in them.

`waveform` is (channels, samples) float32 in [-1, 1]. WAV files hold whole numbers.
"""

from __future__ import annotations

import functools
import io
import re
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.mindspore._declared import REQUIRED
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import format as arg, reading as sources
from sporax.mindspore.dataset._sources.format import FormatDataset, Rows


def _sound(where: str, paths: Sequence[Path], rate_dtype: Any) -> dict[str, sources.Stored]:
    """The columns `waveform` and `sample_rate` of WAV files."""

    def rate(content: bytes, path: Path) -> Array:
        with wave.open(io.BytesIO(content)) as file:  # it was read as a waveform before
            return np.array(file.getframerate(), rate_dtype)

    return {
        "waveform": sources.Files(where, paths, functools.partial(_waveform, where)),
        "sample_rate": sources.Files(where, paths, rate),
    }


def _waveform(where: str, content: bytes, path: Path) -> Array:
    """The waveform (channels, samples) of a WAV file of whole numbers.

    Raises:
        SporaxRuntimeError: it is none, or truncated.
    """
    with sources.reading(where, path):
        try:
            with wave.open(io.BytesIO(content)) as file:
                channels, width, _, count, *_ = file.getparams()
                data = file.readframes(count)
        except (wave.Error, EOFError) as error:
            raise ValueError(str(error) or "the file is truncated") from error
        # `wave` gives what is there without a word.
        if len(data) != count * channels * width:
            raise ValueError(
                f"{count} samples should be there, but the file ends within number {len(data) // width // channels}"
            )
        # Stored sample by sample with channels side by side; rows have channels first.
        return np.ascontiguousarray(_scaled(data, width).reshape(count, channels).T)


def _scaled(data: bytes, width: int) -> Array:
    """Samples of `width` bytes as float32; the largest is 1 (so, as in MindSpore, the smallest is a step below -1)."""
    # WAV stores 8-bit samples without a sign and wider ones with one.
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(127)
    # Moved to the upper end of four bytes, samples of every width are whole numbers of 32 bits.
    wide = np.zeros((len(data) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
    largest = (2 ** (8 * width - 1) - 1) << 8 * (4 - width)
    return (wide.view("<i4").reshape(-1) / largest).astype(np.float32)


class YesNoDataset(
    FormatDataset, arguments=arg.in_folder("folder that holds the files."), columns=("waveform", "sample_rate", "label")
):
    """YesNo: WAV files of eight words each, named by them as 1_0_0_0_1_1_0_0.wav.

    Columns: `waveform`; `sample_rate` () int32; `label` (8,) int32, 1 for yes.
    """

    @staticmethod
    def _read(where: str, folder: Path) -> Rows:
        paths = sources.files_in(where, folder, ".wav")
        labels = []
        for path in paths:
            # The name of a file is its label.
            with sources.reading(where, path, "its name"):
                labels.append(np.array([int(word) for word in path.stem.split("_")], np.int32))
        return {**_sound(where, paths, np.int32), "label": labels}


class LJSpeechDataset(
    FormatDataset,
    arguments=arg.in_folder("folder that holds wavs and metadata.csv."),
    columns=("waveform", "sample_rate", "transcription", "normalized_transcription"),
):
    """LJ Speech: WAV files in wavs, and what is said in metadata.csv.

    Columns: `waveform`; `sample_rate` () int32; `transcription` and `normalized_transcription` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path) -> Rows:
        rows = sources.parse_lines(where, sources.existing(where, folder / "metadata.csv"), _three_fields)
        return {
            **_sound(where, [folder / "wavs" / f"{name}.wav" for name, _, _ in rows], np.int32),
            "transcription": sources.Texts([text for _, text, _ in rows]),
            "normalized_transcription": sources.Texts([text for _, _, text in rows]),
        }


def _three_fields(line: str) -> tuple[str, str, str]:
    # Exactly three: a text with a bar would shift the columns.
    name, text, normalized = line.split("|")
    return name, text, normalized


class GTZANDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the genres' folders.",
        arg.usage(
            *("train", "valid", "test", "all"),
            doc='"all" (the default). "train", "valid" and "test" are not offered: the files do not name their part. '
            "Split the whole.",
        ),
    ),
    columns=("waveform", "sample_rate", "label"),
):
    """GTZAN: WAV files in one folder per genre.

    Columns: `waveform`; `sample_rate` () uint32; `label` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        if part != "all":
            # MindSpore has fixed lists of names in its code.
            raise SporaxNotImplementedError(
                f"For '{where}', 'usage' must be 'all', but got {part!r}: the files do not say their part. Use split()."
            )
        paths = [path for genre in sources.folders_in(where, folder) for path in sources.files_in(where, genre, ".wav")]
        return {**_sound(where, paths, np.uint32), "label": sources.Texts([path.parent.name for path in paths])}


class SpeechCommandsDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the words' folders and the lists.", arg.usage("train", "test", "valid", "all")
    ),
    columns=("waveform", "sample_rate", "label", "speaker_id", "utterance_number"),
):
    """Speech Commands: WAV files {speaker}_nohash_{number}.wav in one folder per word; lists name those for testing.

    Columns: `waveform`; `sample_rate` () int32; `label` and `speaker_id` () str; `utterance_number` () int32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        # The folder holds noise without words.
        words = [path for path in sources.folders_in(where, folder) if path.name != "_background_noise_"]
        paths = [path for word in words for path in sources.files_in(where, word, ".wav")]
        if part != "all":
            lists = {"test": ("testing",), "valid": ("validation",)}.get(part, ("testing", "validation"))
            listed = {
                name
                for kind in lists
                for name in sources.parse_lines(where, sources.existing(where, folder / f"{kind}_list.txt"), str.strip)
            }
            # Training files are those in neither list.
            paths = [path for path in paths if (f"{path.parent.name}/{path.name}" in listed) != (part == "train")]
        names = []
        for path in paths:
            with sources.reading(where, path, "its name"):
                speaker, number = path.stem.split("_nohash_")
                names.append((speaker, int(number)))
        return {
            **_sound(where, paths, np.int32),
            "label": sources.Texts([path.parent.name for path in paths]),
            "speaker_id": sources.Texts([speaker for speaker, _ in names]),
            "utterance_number": np.array([number for _, number in names], np.int32),
        }


_LIBRI_PARTS = (
    *("dev-clean", "dev-other", "test-clean", "test-other"),
    *("train-clean-100", "train-clean-360", "train-other-500"),
)


class LibriTTSDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the parts.",
        arg.usage(*_LIBRI_PARTS, "all", doc='a part, as "dev-clean", or "all" (the default: those that are there).'),
    ),
    columns=(
        *("waveform", "sample_rate", "original_text", "normalized_text"),
        *("speaker_id", "chapter_id", "utterance_id"),
    ),
):
    """LibriTTS: {part}/{speaker}/{chapter}/*.wav, with what is said in *.trans.tsv.

    Columns: `waveform`; `sample_rate` () uint32; `original_text`, `normalized_text` () str; `speaker_id`, `chapter_id` ()
    uint32; `utterance_id` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        # "all" reads the parts that were downloaded; a named part must be there.
        names = _LIBRI_PARTS if part == "all" else (part,)
        parts = [path for path in sources.folders_in(where, folder) if path.name in names]
        folders = parts if part == "all" else [sources.existing(where, folder / part)]
        # By speaker and chapter.
        tables = [path for place in folders for path in sorted(place.glob("*/*/*.trans.tsv"))]
        rows = [(path.parent, *row) for path in tables for row in sources.parse_lines(where, path, _libri_row)]
        return {
            **_sound(where, [place / f"{name}.wav" for place, name, *_ in rows], np.uint32),
            "original_text": sources.Texts([row[2] for row in rows]),
            "normalized_text": sources.Texts([row[3] for row in rows]),
            "speaker_id": np.array([row[4] for row in rows], np.uint32),
            "chapter_id": np.array([row[5] for row in rows], np.uint32),
            "utterance_id": sources.Texts([row[1] for row in rows]),
        }


def _libri_row(line: str) -> tuple[str, str, str, int, int]:
    name, original, normalized = line.split("\t")
    speaker, chapter, *_ = name.split("_")
    return name, original, normalized, int(speaker), int(chapter)


_SPEAKERS = (
    *("aew", "ahw", "aup", "awb", "axb", "bdl", "clb", "eey", "fem"),
    *("gka", "jmk", "ksp", "ljm", "lnh", "rms", "rxr", "slp", "slt"),
)
# ``( name "text" )``.
_UTTERANCE = re.compile(r'\(\s*(\S+)\s+"(.*)"\s*\)')


class CMUArcticDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the speakers' folders.",
        arg.optional(
            "name",
            str,
            'the speaker, as "aew" (the default) or "slt".',
            functools.partial(check.choice, choices=_SPEAKERS),
        ),
    ),
    columns=("waveform", "sample_rate", "transcript", "utterance_id"),
):
    """CMU Arctic: one folder cmu_us_{name}_arctic per speaker, with WAV files and what is said.

    Columns: `waveform`; `sample_rate` () uint32; `transcript`, `utterance_id` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path, speaker: str | None) -> Rows:
        place = folder / f"cmu_us_{speaker or 'aew'}_arctic"

        def row(line: str) -> tuple[str, str]:
            match = _UTTERANCE.fullmatch(line.strip())
            if match is None:
                raise ValueError(f'( name "text" ) expected, found {line!r}')
            return match[1], match[2]

        rows = sources.parse_lines(where, sources.existing(where, place / "etc" / "txt.done.data"), row)
        return {
            **_sound(where, [place / "wav" / f"{name}.wav" for name, _ in rows], np.uint32),
            "transcript": sources.Texts([text for _, text in rows]),
            "utterance_id": sources.Texts([name.removeprefix("arctic_") for name, _ in rows]),
        }


def _ted_folders(where: str, folder: Path, release: str, part: str, extensions: str | None) -> tuple[list[Path]]:
    """The folders of the parts."""
    if release == "release3":
        check.choice(where, "usage", part, ("all",))
        return ([folder / "data"],)
    return ([folder / name for name in (("train", "test", "dev") if part == "all" else (part,))],)


def _stm_row(line: str) -> list[str]:
    """talk, channel, speaker, begin and end in seconds, label, text."""
    # The text is last and has spaces of its own.
    fields = line.split(" ", 6)
    if len(fields) != 7 or not 0 <= float(fields[3]) <= float(fields[4]):
        raise ValueError(f"seven fields with a begin before an end expected, found {line!r}")
    return fields


def _sphere(where: str, path: Path, begin: float, end: float) -> tuple[int, Array]:
    """(samples per second, waveform) of a part of a SPHERE file: a header of text, then samples.

    Raises:
        SporaxRuntimeError: it is none, is compressed, or ends before the part.
    """
    content = sources.read_bytes(where, sources.existing(where, path))
    with sources.reading(where, path):
        first, size, *_ = content[:16].split()
        if first != b"NIST_1A":
            raise ValueError("no SPHERE file")
        # The header is text of `size` bytes: one "name type value" per line.
        entries = (line.split(" ", 2) for line in content[16 : int(size)].decode().split("\n"))
        fields = {entry[0]: entry[2] for entry in entries if len(entry) == 3}
        # Compressed samples ("shorten") would need a decoder.
        if fields.get("sample_coding", "pcm") != "pcm" or fields["sample_n_bytes"] != "2":
            raise ValueError(f"samples must be plain 16-bit, but are {fields.get('sample_coding')}")
        rate, channels = int(fields["sample_rate"]), int(fields["channel_count"])
        # "10" is NIST's code for big-endian.
        dtype = ">i2" if fields.get("sample_byte_format") == "10" else "<i2"
        samples = np.frombuffer(content, dtype, offset=int(size)).reshape(-1, channels)
        start, stop = int(begin * rate), int(end * rate)
        if stop > len(samples):
            raise ValueError(f"the part ends at sample {stop}, but the file has {len(samples)}")
    # The largest sample is 1, as for WAV.
    return rate, np.ascontiguousarray(samples[start:stop].T / np.float32(32767), np.float32)


def _ending(where: str, name: str, value: object) -> str:
    if check.text(where, name, value) != ".sph":
        raise check.in_words(SporaxRuntimeError, where, f"Invalid extensions, {value} is not supported.")
    return ".sph"


class TedliumDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder of the release.",
        arg.choice("release", "release1", "release2", "release3", default=REQUIRED),
        arg.usage(
            *("train", "test", "dev", "all"),
            doc='"train", "test", "dev" or "all" (the default); "all" only for "release3".',
        ),
        arg.optional("extensions", str, 'must be ".sph" or None.', _ending),
    ),
    columns=("waveform", "sample_rate", "transcript", "talk_id", "speaker_id", "identifier"),
    prepare=_ted_folders,
):
    """TED-LIUM: talks in SPHERE files (uncompressed 16-bit), split into segments by STM files.

    Columns: `waveform`; `sample_rate` () int32; `transcript`, `talk_id`, `speaker_id`, `identifier` () str.
    """

    @staticmethod
    def _read(where: str, folders: Sequence[Path]) -> Rows:
        rows: list[tuple[Path, list[str]]] = []
        for place in folders:
            for stm in sources.files_in(where, place / "stm", ".stm"):
                sound = place / "sph" / f"{stm.stem}.sph"
                rows += [(sound, row) for row in sources.parse_lines(where, stm, _stm_row)]

        def talk(index: int) -> tuple[int, Array]:
            path, row = rows[index]
            return _sphere(where, path, float(row[3]), float(row[4]))

        return {
            # Waveform and rate come from the same part of a file, which is read for each.
            "waveform": sources.Computed(len(rows), lambda index: talk(index)[1]),
            "sample_rate": sources.Computed(len(rows), lambda index: np.array(talk(index)[0], np.int32)),
            "transcript": sources.Texts([row[6] for _, row in rows]),
            "talk_id": sources.Texts([row[0] for _, row in rows]),
            "speaker_id": sources.Texts([row[2] for _, row in rows]),
            "identifier": sources.Texts([row[5] for _, row in rows]),
        }
