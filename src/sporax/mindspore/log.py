"""What scripts say with `from mindspore import log as logger`: lines with level, process, time and place.

Environment, as in MindSpore: ``GLOG_v`` is the lowest level that is shown (0 debug, 1 info, 2 warning, the default, 3 error,
4 critical); lines go to stderr unless ``GLOG_logtostderr`` is 0, and then to ``rank_<RANK_ID>/logs/mindspore.log`` in the
directory ``GLOG_log_dir``. It is read when this module is loaded.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import localtime, strftime
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore._names.missing import answer_missing_names

__all__ = ["critical", "debug", "error", "get_level", "get_log_config", "info", "warning"]

answer_missing_names(__name__)

_once: set[str] = set()
"""Keys of `_LogActionOnce` that have warned."""

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


class _Form(logging.Formatter):
    """``[WARNING] ME(process:thread,MainProcess):2026-01-31-12:00:00.123.000 [train.py:7] message``."""

    def __init__(self) -> None:
        super().__init__(
            "[%(levelname)s] ME(%(process)d:%(thread)d,%(processName)s):%(asctime)s [%(pathname)s:%(lineno)d] %(message)s"
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        return f"{strftime('%Y-%m-%d-%H:%M:%S', localtime(record.created))}.{int(record.msecs):03d}.000"


def get_level() -> str:
    """The lowest level that is shown, ``"0"`` to ``"4"``.

    Raises:
        SporaxValueError: ``GLOG_v`` is none of them.
    """
    level = os.environ.get("GLOG_v", "2")  # noqa: SIM112 (glog's name)
    if level not in {str(number) for number in range(len(_LEVELS))}:
        raise SporaxValueError(
            f"For 'log', 'GLOG_v' must be 0 (debug), 1 (info), 2 (warning), 3 (error) or 4 (critical), but got '{level}'."
        )
    return level


def get_log_config() -> dict[str, str]:
    """The settings of the environment that hold."""
    settings = {"GLOG_v": get_level(), "GLOG_logtostderr": os.environ.get("GLOG_logtostderr", "1")}  # noqa: SIM112 - MindSpore's spelling
    if "GLOG_log_dir" in os.environ:
        settings["GLOG_log_dir"] = os.environ["GLOG_log_dir"]  # noqa: SIM112 - MindSpore's spelling
    return settings


def _handler(config: dict[str, str]) -> logging.Handler:
    """Where lines go.

    Raises:
        SporaxValueError: to a file, but there is no directory for it.
    """
    if config["GLOG_logtostderr"] != "0":
        return logging.StreamHandler()
    if "GLOG_log_dir" not in config:
        raise SporaxValueError("For 'log', 'GLOG_log_dir' must be set when 'GLOG_logtostderr' is 0, but it is not.")
    directory = Path(config["GLOG_log_dir"]).expanduser() / f"rank_{os.environ.get('RANK_ID', '0')}" / "logs"
    directory.mkdir(parents=True, exist_ok=True)
    return logging.FileHandler(directory / "mindspore.log")


def _script_logger() -> logging.Logger:
    config = get_log_config()
    handler = _handler(config)
    handler.setFormatter(_Form())
    logger = logging.getLogger("sporax.script")
    logger.setLevel(_LEVELS[int(config["GLOG_v"])])
    logger.handlers[:] = [handler]
    logger.propagate = False
    return logger


_logger = _script_logger()

debug = _logger.debug
info = _logger.info
warning = _logger.warning
error = _logger.error
critical = _logger.critical


class _LogActionOnce:  # MindSpore's name
    """Decorates a function: what it warns of, `logger` shows in its first call, and never with `no_warning`.

    Args:
        logger: what has `warning`.
        key: functions of one key warn once together.
        no_warning: show nothing.
    """

    def __init__(self, logger: Any, key: str, no_warning: bool = False) -> None:
        self._logger, self._key, self._silent = logger, key, no_warning

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def once(*args: Any, **kwargs: Any) -> Any:
            if not self._silent and self._key not in _once:
                _once.add(self._key)
                return func(*args, **kwargs)
            warning, self._logger.warning = self._logger.warning, lambda *_, **__: None
            try:
                return func(*args, **kwargs)
            finally:
                self._logger.warning = warning

        return once
