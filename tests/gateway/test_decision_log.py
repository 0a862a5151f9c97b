"""Decisions are kept with what came of them, in bounded memory, and said in the log where that is asked for."""

import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from backends import PerfModel
from gateway.decision_log import DecisionLog, Outcome
from gateway.log_lines import LOGGER
from gateway.scheduling import Candidate, Decision, Demand, Evidence, Filtered, Shortened, decide_by_cost, hindsight
from gateway.scheduling.explain import MOST_SHOWN
from gateway.types import InferenceRequest, KeyId, Plan, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import TokenIds, chain_of
from prefix_index.prompt import PromptView

ENDPOINTS = 500
SPEED = PerfModel()
PLAN = Plan(chain_of(TokenIds(b"abcd" * 64), b"root", 16), TokenSource.LOCAL)


def request(name: str) -> InferenceRequest:
    return InferenceRequest(
        id=RequestId(name),
        tenant=Tenant(TenantId("acme"), KeyId("k"), "g", "salt"),
        route=Route.COMPLETIONS,
        path=Route.COMPLETIONS.value,
        model="m",
        stream=True,
        client_wants_usage=False,
        max_output_tokens=1,
        prompt=PromptView(prompt="a secret"),
        body=b"a secret",
        headers=(),
        started_s=0.0,
        opened_at=datetime.now(UTC),
    )


def decision(number: int, endpoints: int = ENDPOINTS) -> Decision:
    """A decision about objects of its own, as each request has them."""
    candidates = [Candidate(f"e{at}", at + 0.5, at, number + at, SPEED, 0.3, at + 0.1) for at in range(endpoints)]
    filtered = {f"f{at}": Filtered.DRAINING for at in range(endpoints)}
    return decide_by_cost(candidates, filtered, demand=Demand(4000, 256), near_tie_s=0.0, chance=0.5)


def settle(log: DecisionLog, name: str, made: Decision, evidence: Evidence) -> None:
    log.settle(RequestId(name), made, Outcome("complete", evidence, hindsight(made, evidence)))


def test_a_decision_gets_what_came_of_it() -> None:
    log, made = DecisionLog(), decision(0, endpoints=2)
    log.keep(request("r"), PLAN, made)
    kept = log.find("r")
    assert kept is not None
    assert kept.as_json()["outcome"] is None
    settle(log, "r", made, Evidence(reported_cached_tokens=0, ttft_s=2.0))
    kept = log.find("r")
    assert kept is not None
    told = kept.as_json()["outcome"]
    assert isinstance(told, dict)
    assert (told["state"], told["reported_cached_tokens"], told["ttft_s"]) == ("complete", 0, 2.0)
    assert told["regret_s"] == pytest.approx(told["cost_s"] - told["least_other_cost_s"])
    assert told["predicted_ttft_s"] < told["ttft_s"]


def test_a_settled_decision_among_hundreds_takes_a_few_kilobytes() -> None:
    log, count = DecisionLog(), 200
    tracemalloc.start()
    for number in range(count):
        name, made = f"r{number}", decision(number)
        log.keep(request(name), PLAN, made)
        settle(log, name, made, Evidence(ttft_s=1.0))
    del made
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kept = log.find("r0")
    assert kept is not None
    assert len(kept.decision.decision.candidates if isinstance(kept.decision, Shortened) else ()) == MOST_SHOWN
    assert kept_bytes / count < 10_000, "whole it would be more than 100,000"


def test_only_the_last_ones_are_kept_and_what_left_is_settled_without_a_word() -> None:
    log, made = DecisionLog(most=2), decision(0, endpoints=2)
    for name in ("r1", "r2", "r3"):
        log.keep(request(name), PLAN, made)
    settle(log, "r1", made, Evidence())
    assert log.find("r1") is None
    assert log.find("r3") is not None


def test_a_request_is_settled_once() -> None:
    log, made = DecisionLog(), decision(0, endpoints=2)
    log.keep(request("r"), PLAN, made)
    settle(log, "r", made, Evidence(ttft_s=1.0))
    settle(log, "r", made, Evidence(ttft_s=9.0))
    kept = log.find("r")
    assert kept is not None
    assert kept.outcome is not None
    assert kept.outcome.evidence.ttft_s == 1.0


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def logged(level: int) -> Iterator[list[logging.LogRecord]]:
    """What is logged in the block, at this level."""
    lines, before = Lines(), LOGGER.level
    LOGGER.addHandler(lines)
    LOGGER.setLevel(level)
    try:
        yield lines.records
    finally:
        LOGGER.setLevel(before)
        LOGGER.removeHandler(lines)


def test_the_terms_are_a_line_at_debug_and_nothing_at_info() -> None:
    log, made = DecisionLog(), decision(0)
    with logged(logging.INFO) as lines:
        log.keep(request("r"), PLAN, made)
    assert lines == []
    with logged(logging.DEBUG) as lines:
        log.keep(request("r"), PLAN, made)
    (line,) = lines
    fields = line.__dict__["fields"]
    assert (line.getMessage(), fields["request_id"], fields["endpoint"]) == ("decision", "r", made.endpoint_id)
    assert len(fields["terms"]) == 16
    assert "secret" not in str(fields)
