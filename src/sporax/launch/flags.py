"""The parser of every command: short messages, and flags as people type them.

`argparse` prints the usage, 20 lines for `sporax run`, in front of one wrong flag, and offers no similar name. Here a mistake is
one message. A dash in a flag may stand for an underscore, and the other way round (``--worker-num``).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from sporax.base.suggestions import did_you_mean
from sporax.launch.job_file import from_file

_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` for commands of Sporax; its sub-commands have the same class."""

    def parsed(self, args: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`; a flag with other dashes and underscores than its own counts as that flag.

        Of a command with `--config`, flags begin with what the file says.

        Raises:
            SporaxValueError: the file is none of flags.
        """
        chosen = self._respelt(args, argparse.Namespace())
        path = getattr(chosen, "config", None)
        return chosen if path is None else self._respelt(args, from_file(path, self._actions))

    def _respelt(self, args: Sequence[str], values: argparse.Namespace) -> argparse.Namespace:
        words = list(args)
        by_letters = {_plain(flag): flag for flag in self._flags()}
        while True:
            chosen, unknown = self.parse_known_args(words, argparse.Namespace(**vars(values)))
            # Words of the target come last and are not looked at, so the first such word is the one that was not known.
            respelt = [word for word in unknown if _respelt(word, by_letters) is not None]
            if not respelt:
                break
            words[words.index(respelt[0])] = str(_respelt(respelt[0], by_letters))
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return chosen

    def error(self, message: str) -> NoReturn:
        """Print one message, with the name that was probably meant, and end the process with exit code 2."""
        found = _CHOICE.search(message)
        hint = ""
        if found:
            hint = did_you_mean(found[1], (name.strip(" '") for name in found[2].split(",")))
        elif message.startswith(_UNKNOWN):
            hint = did_you_mean(message.removeprefix(_UNKNOWN).split()[0].partition("=")[0], self._flags())
        self.exit(2, f"{self.prog}: error: {message}.{hint} `{self.prog} --help` shows what there is.\n")

    def _flags(self) -> list[str]:
        return list(dict.fromkeys(_FLAG.findall(self.format_usage())))


def _plain(flag: str) -> str:
    return flag.replace("-", "_")


def _respelt(word: str, by_letters: dict[str, str]) -> str | None:
    """A word with a flag in its own spelling; None where it is no flag, or is spelt so already."""
    flag, equals, value = word.partition("=")
    known = by_letters.get(_plain(flag)) if flag.startswith("--") else None
    return None if known in (None, flag) else f"{known}{equals}{value}"
