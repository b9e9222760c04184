"""Secrets of the processes of a launched job: a private directory, and the token in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from sporax.cluster import private
from sporax.cluster.private import DIRECTORY_VARIABLE
from sporax.cluster.token import TOKEN_FILE_VARIABLE, new_token, read_token, token_from_environ, write_token

_SCHEDULER = "parameter-server"


class JobSecrets(Struct, frozen=True):
    """Of one job, on this node.

    Attributes:
        directory: mode 700, with a random name; removed when the job is over.
        token: what every process proves that it knows; "" in a job of several nodes whose user has given none.
    """

    directory: Path
    token: str

    @property
    def variables(self) -> dict[str, str]:
        """What leads ranks to it."""
        variables = {DIRECTORY_VARIABLE: str(self.directory)}
        if self.token:
            variables[TOKEN_FILE_VARIABLE] = str(self.directory / "token")
        return variables


def make_secrets(token_file: str | None, is_one_node: bool, environ: Mapping[str, str]) -> JobSecrets:
    """Draw the token of a job, or take the one that the user gives, and put it where its ranks find it.

    Raises:
        SporaxValueError: the user's token file cannot be used.
        SporaxRuntimeError: there is no place for a private directory.
    """
    token = token_from_environ(environ) if token_file is None else read_token(token_file, "--token-file")
    # On one node no other process has to know it beforehand.
    if not token and is_one_node:
        token = new_token()
    directory = private.make_job_directory()
    if token:
        write_token(str(directory / "token"), token)
    return JobSecrets(directory, token)


def note_scheduler(secrets: JobSecrets, address: str) -> None:
    """Leave the address of a job's parameter server, so that `sporax ps` finds the token of this user's job by it."""
    (secrets.directory / _SCHEDULER).write_text(address, encoding="utf-8")


def token_file_of(address: str) -> str:
    """The token file of this user's job on this machine whose parameter server listens at an address; "" for none."""
    # By address, since the user names a scheduler and not a job.
    for directory in private.job_directories():
        with suppress(OSError):
            if (directory / _SCHEDULER).read_text(encoding="utf-8") == address:
                return str(directory / "token")
    return ""
