"""When loads are published, how long the others' count, and the log that says things once."""

import logging

import pytest

from prefix_index.load_exchange import LoadExchange
from prefix_index.quiet_log import QuietLog
from prefix_index.types import Load

ONE, TWO = Load(1, 10, 100), Load(2, 20, 200)


def exchange() -> LoadExchange:
    return LoadExchange(interval_s=0.05, heartbeat_s=1.0, stale_after_s=10.0)


def test_the_first_publication_is_due_at_once_then_at_each_heartbeat() -> None:
    loads = exchange()
    assert loads.due_at_s < 0
    loads.publishing(5.0)
    assert loads.due_at_s == 6.0


def test_a_change_is_news_once_and_soon_due() -> None:
    loads = exchange()
    loads.publishing(5.0)
    assert loads.set("a", ONE)
    assert not loads.set("a", TWO)
    assert loads.due_at_s == 5.05
    loads.publishing(5.05)
    assert loads.due_at_s == 6.05
    assert loads.set("a", ONE)


def test_what_did_not_arrive_is_soon_due_again() -> None:
    loads = exchange()
    loads.publishing(5.0)
    loads.undelivered()
    assert loads.due_at_s == 5.05


def test_nothing_outstanding_is_no_load_and_a_withdrawal_is_due_at_once() -> None:
    loads = exchange()
    loads.set("a", ONE)
    loads.set("b", ONE)
    loads.set("a", Load())
    assert loads.own == {"b": ONE}
    loads.publishing(5.0)
    loads.withdraw()
    assert loads.own == {}
    assert loads.due_at_s < 0


def test_the_others_count_while_they_are_fresh() -> None:
    loads = exchange()
    loads.set("a", ONE)
    loads.heard({"a": TWO, "b": ONE}, 5.0)
    assert loads.total(15.0) == {"a": Load(3, 30, 300), "b": ONE}
    assert loads.total(15.1) == {"a": ONE}


def test_a_warning_of_one_kind_is_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    quiet = QuietLog(logging.getLogger("prefix_index"), 10.0, lambda: now_s)
    quiet.warn("lost %d", 1)
    quiet.warn("lost %d", 2)
    quiet.warn("found")
    now_s = 10.0
    quiet.warn("lost %d", 3)
    assert [record.getMessage() for record in caplog.records] == ["lost 1", "found", "lost 3"]
