"""The log: one JSON object a line, and nobody who serves waits until it is written.

    loop, other threads   record --> line --> [ waiting: at most 4 MiB ]         O(line), no I/O
    thread "log-writer"                           `-- 50 ms later, at once for a warning --> few writes to the stream

A stream that takes nothing, such as the full pipe of a collector that hangs, stops the writer alone. Lines that then
find no room are dropped and counted; once there is room again, a line says how many were.

What is waiting is gone when the process is killed; at an orderly end it is written, within `FLUSH_S`.

Costs: 2 µs for a line with `tell`, a fifth of what a record of the `logging` module costs before anything is written.
"""

import logging
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, TextIO

import msgspec

from gateway.backlog import Backlog

LOGGER: Final = logging.getLogger("prefixgate")
_ROOMS: Final = (LOGGER.name, "prefix_index", "backends", "billing")

MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
"""Some 8,000 requests."""
GATHER_S: Final = 0.05
"""How long a line waits for others, so that under load there is a write for many."""
FLUSH_S: Final = 1.0
"""How long an orderly end waits for a stream that takes nothing, twice."""

_JSON: Final = msgspec.json.Encoder(enc_hook=str)


class LogWriter:
    """Lines on their way to a stream. Safe to call from any thread.

    `sink` writes all lines that it gets, for as long as that takes; an `OSError` loses them.
    """

    def __init__(self, sink: Callable[[Iterable[bytes]], None], most_bytes: int = MOST_WAITING_BYTES) -> None:
        self._sink = sink
        self._backlog = Backlog("log-writer", self._write, most=most_bytes, gather_s=GATHER_S)
        self.dropped_lines = 0
        """Since the start."""
        self._told_lines = 0
        """Of them, those that a line has told of."""

    def put(self, line: bytes, *, urgent: bool = False) -> None:
        """Have a line written. O(1), no I/O."""
        if not self._backlog.put(line, len(line), urgent=urgent):
            self.dropped_lines += 1

    def flush(self, within_s: float = FLUSH_S) -> bool:
        """Wait until all that was put before is written or lost; False where that took too long."""
        return self._backlog.flush(within_s)

    def close(self) -> None:
        """Flush, and let the thread end. What is put later begins anew."""
        self.flush()
        self._backlog.close()

    def _write(self, lines: list[bytes]) -> None:
        untold = self.dropped_lines - self._told_lines
        self._told_lines += untold
        notice = [line_of(time.time(), "warning", "log lines were dropped", {"lines": untold})] if untold else []
        try:
            self._sink(notice + lines)
        except (OSError, ValueError):  # nobody reads any more, or the stream is closed
            self.dropped_lines += len(lines)


class LineHandler(logging.Handler):
    """Records of the `logging` module as lines; `fields` of a record are laid beside its message."""

    def __init__(self, stream: TextIO, most_bytes: int = MOST_WAITING_BYTES) -> None:
        super().__init__()
        self._stream = stream  # kept open
        self.writer = LogWriter(_sink_of(stream), most_bytes)

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        try:
            fields = dict(getattr(record, "fields", {}))
            if record.exc_info and record.exc_info[0] is not None:
                fields["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            level = record.levelname.lower()
            line = line_of(record.created, level, record.getMessage(), fields)
            self.writer.put(line, urgent=record.levelno >= logging.WARNING)
        except Exception:  # noqa: BLE001 - a record that cannot be told must not harm who told it
            self.handleError(record)

    def flush(self) -> None:
        """Wait, not too long, until all is written."""
        self.writer.flush()

    def close(self) -> None:
        """Flush, and let the thread end."""
        self.writer.close()
        super().close()


def tell(message: str, fields: dict[str, object]) -> None:
    """What `LOGGER.info` would say, with fields beside it, for what is said about each request.

    Where nobody listens but our own handler, no record is made.
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    handlers = LOGGER.handlers
    if len(handlers) == 1 and type(handlers[0]) is LineHandler and not LOGGER.propagate:
        handlers[0].writer.put(line_of(time.time(), "info", message, fields))
    else:
        LOGGER.info(message, extra={"fields": fields})


def line_of(at_s: float, level: str, message: str, fields: Mapping[str, object]) -> bytes:
    """A line of the log, its end included. `at_s` is Unix time; local time is shown. O(line)."""
    whole_s = int(at_s)
    ms = int((at_s - whole_s) * 1000)
    line = b'%b.%03d","level":"%b","message":%b' % (_begun(whole_s), ms, level.encode(), _JSON.encode(message))
    return b"%b,%b\n" % (line, _JSON.encode(fields)[1:]) if fields else line + b"}\n"


@lru_cache(maxsize=2)
def _begun(whole_s: int) -> bytes:
    """How the lines of a second begin: by far the dearest part of a line."""
    return time.strftime('{"time":"%Y-%m-%dT%H:%M:%S', time.localtime(whole_s)).encode()


def dropped_lines() -> int:
    """Lines of this process that were lost, since nobody took them."""
    return sum(handler.writer.dropped_lines for handler in LOGGER.handlers if isinstance(handler, LineHandler))


def set_up_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """Send the log lines of all rooms to `stream` as JSON, and of other libraries those from warnings on.

    Called once by the command line, never by a library user.
    """
    handler = LineHandler(stream)
    for name in _ROOMS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    others = logging.getLogger()
    others.handlers = [handler]
    others.setLevel(max(logging.WARNING, LOGGER.level))


def tell_nobody() -> None:
    """Have no line written of what the rooms say, for a command that reports it itself."""
    for name in _ROOMS:
        logging.getLogger(name).addHandler(logging.NullHandler())


def _sink_of(stream: TextIO) -> Callable[[Iterable[bytes]], None]:
    """Writes to what is below a stream: its own buffer has a lock that others would wait for."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # it is in memory
        return lambda lines: _write_text(stream, lines)
    return lambda lines: _write_bytes(descriptor, lines)


def _write_text(stream: TextIO, lines: Iterable[bytes]) -> None:
    stream.write(b"".join(lines).decode())
    stream.flush()


def _write_bytes(descriptor: int, lines: Iterable[bytes]) -> None:
    """Several processes may write to one pipe, which takes up to `PIPE_BUF` as a whole: so whole lines up to that."""
    together = bytearray()
    for line in lines:
        if together and len(together) + len(line) > select.PIPE_BUF:
            _write_all(descriptor, together)
            together = bytearray()
        together += line
    _write_all(descriptor, together)


def _write_all(descriptor: int, data: bytearray) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # whoever started us made it so
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
