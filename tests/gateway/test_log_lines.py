"""The log as an operator reads it, and what becomes of it where nobody does."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TextIO

import pytest

from gateway.log_lines import LOGGER, LineHandler, LogWriter, dropped_lines, set_up_logging, tell
from gateway.telemetry import Telemetry

ROOMS = ("prefixgate", "prefix_index", "backends", "billing")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (*ROOMS, None)]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for handler in LOGGER.handlers:
        handler.close()
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def writer() -> LogWriter:
    (handler,) = LOGGER.handlers
    assert isinstance(handler, LineHandler)
    return handler.writer


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    assert writer().flush(30)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], TextIO]]:
    """A pipe that nobody reads unless a test does."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as begin, os.fdopen(writing, "w") as end:
        yield begin, end


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_logs_lines_of_json_from_the_configured_level_on(room: str) -> None:
    out = io.StringIO()
    set_up_logging("warning", out)
    logging.getLogger(room).warning("%d dropped", 3)
    logging.getLogger(room).info("not shown")
    (line,) = lines(out)
    assert (line["level"], line["message"]) == ("warning", "3 dropped")


def test_other_libraries_are_heard_from_warnings_on() -> None:
    out = io.StringIO()
    set_up_logging("debug", out)
    logging.getLogger("asyncio").info("not shown")
    logging.getLogger("asyncio").warning("a socket was forgotten")
    assert [line["message"] for line in lines(out)] == ["a socket was forgotten"]


def test_fields_stand_beside_the_message() -> None:
    out = io.StringIO()
    set_up_logging("info", out)
    LOGGER.info("request", extra={"fields": {"request_id": "r", "path": Path("a")}})
    (line,) = lines(out)
    assert (line["request_id"], line["path"]) == ("r", "a")


def test_a_failure_is_told_with_its_trace_in_one_line() -> None:
    out = io.StringIO()
    set_up_logging("info", out)
    try:
        int("two")
    except ValueError:
        LOGGER.exception("failed")
    (line,) = lines(out)
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("with base 10: 'two'")


def test_what_is_told_of_a_request_is_the_line_that_a_record_would_be() -> None:
    out = io.StringIO()
    set_up_logging("info", out)
    fields: dict[str, object] = {"tenant": "café", "ttft_s": 0.25, "cached_tokens": None, "stream": True}
    tell("request", fields)
    LOGGER.info("request", extra={"fields": fields})
    told, logged = lines(out)
    assert (
        {**told, "time": ""} == {**logged, "time": ""} == {**fields, "time": "", "level": "info", "message": "request"}
    )
    assert list(told) == list(logged)


def test_what_is_told_of_a_request_reaches_other_handlers_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    tell("request", {"tenant": "acme"})
    (record,) = caplog.records
    assert vars(record)["fields"] == {"tenant": "acme"}


def test_nothing_is_told_of_requests_above_their_level() -> None:
    out = io.StringIO()
    set_up_logging("warning", out)
    tell("request", {"tenant": "acme"})
    assert lines(out) == []


def test_a_reader_that_hangs_costs_lines_and_nothing_else(
    pipe: tuple[IO[bytes], TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe
    set_up_logging("info", writing)
    monkeypatch.setattr(writer()._backlog, "_most", 50_000)
    for number in range(10_000):
        tell("request", {"number": number})
    dropped = dropped_lines()
    assert dropped > 0
    assert Telemetry().registry.get_sample_value("prefixgate_log_lines_dropped_total") == dropped
    with ThreadPoolExecutor() as threads:
        reader = threads.submit(lambda: [json.loads(line) for line in iter(reading.readline, b"")])
        assert writer().flush(30)
        LOGGER.warning("last")
        assert writer().flush(30)
        writing.close()
        read = reader.result(30)
    kept = [line["number"] for line in read if "number" in line]
    assert kept == sorted(set(kept))
    assert sum(line.get("lines", 0) for line in read) == dropped == 10_000 - len(kept)
    assert read[-1]["message"] == "last"


def test_a_reader_that_has_gone_costs_lines_and_nothing_else(pipe: tuple[IO[bytes], TextIO]) -> None:
    reading, writing = pipe
    set_up_logging("info", writing)
    reading.close()
    tell("request", {})
    assert writer().flush(30)
    assert dropped_lines() == 1


def test_a_stream_that_does_not_wait_gets_all_of_a_long_text(pipe: tuple[IO[bytes], TextIO]) -> None:
    reading, writing = pipe
    os.set_blocking(writing.fileno(), False)
    set_up_logging("info", writing)
    tell("request", {"text": "x" * 1_000_000})
    assert json.loads(reading.readline())["text"] == "x" * 1_000_000


def test_lines_of_several_processes_that_share_a_pipe_stay_whole(pipe: tuple[IO[bytes], TextIO]) -> None:
    reading, writing = pipe
    code = "for n in range(2000): tell('n', {'n': n, 'text': 'x' * (n % 700)})"
    started = [run(code, stderr=writing) for _ in range(3)]
    writing.close()
    numbers = [json.loads(line)["n"] for line in iter(reading.readline, b"")]
    assert [one.wait(timeout=60) for one in started] == [0, 0, 0]
    assert sorted(numbers) == sorted([*range(2000)] * 3)


def test_lines_of_many_threads_are_all_written_whole() -> None:
    out = io.StringIO()
    set_up_logging("info", out)

    def say(first: int) -> None:
        for number in range(first, first + 500):
            tell("number", {"n": number})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(say, range(0, 2000, 500)))
    assert sorted(line["n"] for line in lines(out)) == list(range(2000))


def test_what_is_said_after_the_end_begins_anew() -> None:
    out = io.StringIO()
    set_up_logging("info", out)
    tell("one", {})
    LOGGER.handlers[0].close()
    tell("two", {})
    assert [line["message"] for line in lines(out)] == ["one", "two"]


def run(code: str, **options: Any) -> subprocess.Popen[bytes]:
    code = f"from gateway.log_lines import *\nset_up_logging('info')\n{code}"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **options)


def test_a_process_that_ends_has_written_its_last_line() -> None:
    ended = run("LOGGER.info('last')", stderr=subprocess.PIPE)
    assert json.loads(ended.communicate(timeout=60)[1])["message"] == "last"


def test_a_process_that_was_forked_off_writes_its_own_lines() -> None:
    code = "import os\nLOGGER.info('parent')\nflush = LOGGER.handlers[0].flush\nflush()\n"
    code += "if os.fork(): os.wait()\nelse: LOGGER.info('child'); flush(); os._exit(0)"
    ended = run(code, stderr=subprocess.PIPE)
    written = ended.communicate(timeout=60)[1].splitlines()
    assert [json.loads(line)["message"] for line in written] == ["parent", "child"]


def test_a_process_whose_log_nobody_reads_ends_all_the_same(pipe: tuple[IO[bytes], TextIO]) -> None:
    _, writing = pipe
    ended = run("for _ in range(3000): LOGGER.info('x' * 100)", stderr=writing)
    assert ended.wait(timeout=60) == 0
