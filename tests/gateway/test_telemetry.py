"""The log as an operator reads it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gateway.telemetry import LOGGER, set_up_logging

ROOMS = ("prefixgate", "prefix_index", "backends", "billing")


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ROOMS]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_logs_lines_of_json_from_the_configured_level_on(room: str) -> None:
    out = io.StringIO()
    set_up_logging("warning", out)
    logging.getLogger(room).warning("%d dropped", 3)
    logging.getLogger(room).info("not shown")
    line = json.loads(out.getvalue())
    assert (line["level"], line["message"]) == ("warning", "3 dropped")


def test_fields_stand_beside_the_message() -> None:
    out = io.StringIO()
    set_up_logging("info", out)
    LOGGER.info("request", extra={"fields": {"request_id": "r"}})
    assert json.loads(out.getvalue())["request_id"] == "r"
