"""The node's log: one structured line for each thing that happened (H8).

    2026-11-21T06:00:00.123Z info schedd: taking up running jobs jobs=3

or the same as one JSON object a line. Words to search for come as `extra` fields, never inside the message.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any, TextIO

from pool.errors import PoolError

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up_logging(stream: TextIO, *, as_json: bool, level: str) -> None:
    """Log the package's records to a stream from a level on.

    Raises:
        PoolError: there is no such level.
    """
    if level.lower() not in LEVELS:
        raise PoolError(f"LOG_LEVEL = {level}: no such level", hint=f"one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logger = logging.getLogger("pool")
    logger.handlers[:] = [handler]
    logger.setLevel(LEVELS[level.lower()])
    logger.propagate = False


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def _format_time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class TextLines(logging.Formatter):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        where = record.name.removeprefix("pool").lstrip(".") or "node"
        parts = [_format_time(record), record.levelname.lower(), f"{where}:", record.getMessage()]
        parts += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        line = " ".join(parts)
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """Lines for programs."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": _format_time(record),
            "level": record.levelname.lower(),
            "where": record.name.removeprefix("pool").lstrip(".") or "node",
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            found["trace"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def _quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(character in text for character in ' "=\n\t') else text
