"""What a request says of its urgency, and what that is worth."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.dialects import DIALECTS
from gateway.config import load_config
from gateway.edge.reading import Arrival, read_request
from gateway.queue_setup import bounds_of, class_book
from gateway.queueing.asking import patience_s, tier_of
from gateway.queueing.engine_priority import engine_priority
from gateway.queueing.fullness import Bound
from gateway.types import InferenceRequest, KeyId, RequestId, Route, Tenant, TenantId

CLASSES = [
    {"name": "urgent", "keys": ["acme-pager"], "service_tiers": ["priority"], "asked_by": ["acme"]},
    {"name": "usual"},
    {"name": "batch", "tenants": ["crawler"], "service_tiers": ["flex"]},
]
BOOK = class_book(load_config(None, {}, {"queue.classes": CLASSES}))
URGENT, USUAL, BATCH = range(3)


def request(
    tenant: str = "bolt", key: str = "k", headers: Mapping[str, str] | None = None, body: bytes = b"{}"
) -> InferenceRequest:
    fields = tuple((name.encode(), value.encode()) for name, value in (headers or {}).items())
    who = Tenant(TenantId(tenant), KeyId(key), tenant, "")
    arrival = Arrival(RequestId("r"), who, Route.COMPLETIONS, "/v1/completions", fields, 0.0, datetime.now(UTC))
    return read_request(arrival, body)


@pytest.mark.parametrize(
    ("asked", "rank"),
    [
        (request(), USUAL),
        (request("crawler"), BATCH),
        (request("crawler", "acme-pager"), URGENT),
        (request(headers={"x-prefixgate-priority": "batch"}), BATCH),
        (request(body=b'{"prompt": "x", "service_tier": "flex"}'), BATCH),
        (request(headers={"x-prefixgate-priority": "urgent"}), USUAL),
        (request("acme", headers={"x-prefixgate-priority": "urgent"}), URGENT),
        (request("acme", body=b'{"service_tier": "priority"}'), URGENT),
        (request("crawler", headers={"x-prefixgate-priority": "usual"}), BATCH),
        (request(headers={"x-prefixgate-priority": "no such class"}), USUAL),
        (request(body=b'{"service_tier": {"a": 1}}'), USUAL),
    ],
)
def test_a_class_is_that_of_key_or_tenant_and_may_be_lowered_by_all_and_raised_by_some(
    asked: InferenceRequest, rank: int
) -> None:
    assert BOOK.rank_of(asked) == rank


def test_the_shortest_of_the_times_that_a_client_names_is_its_patience() -> None:
    fields = ((b"x-stainless-read-timeout", b"600"), (b"x-prefixgate-deadline-ms", b"8000"), (b"accept", b"*/*"))
    assert patience_s(fields) == 8.0
    assert patience_s(((b"x-stainless-timeout", b"60"),)) == 60.0


@pytest.mark.parametrize("said", [b"", b"soon", b"nan", b"-1", b"0", b"inf", b"\xff"])
def test_a_time_that_is_none_is_not_said(said: bytes) -> None:
    assert patience_s(((b"x-prefixgate-deadline-ms", said),)) == math.inf


@given(st.binary(max_size=60))
def test_no_body_breaks_the_look_for_a_service_tier(body: bytes) -> None:
    assert tier_of(body) is None or b"service_tier" in body


def test_a_body_nested_without_end_has_no_service_tier() -> None:
    assert tier_of(b'{"a":' * 100_000) is None


def test_bounds_are_a_backends_own_or_those_of_all() -> None:
    backends = [
        {"url": "http://a", "id": "a"},
        {"url": "http://b", "id": "b", "max_running": "auto", "max_queued_tokens": 5000},
        {"url": "http://c", "id": "c", "max_running": 3, "max_kv_use": 0.9},
    ]
    bounds = bounds_of(load_config(None, {}, {"backends": backends, "queue.max_running": 8}))
    assert bounds.others == Bound(8)
    assert bounds.of == {"a": Bound(8), "b": Bound(None, True, 5000), "c": Bound(3, False, None, 0.9)}


def test_priorities_rise_and_fall_as_each_engine_counts_them() -> None:
    forms = {dialect.name: dialect.priority for dialect in DIALECTS}
    told = {name: [engine_priority(form, rank) for rank in range(3)] for name, form in forms.items()}
    assert told["vllm"] == [0, 1, 2]
    assert told["sglang"] == [0, -1, -2]
    assert told["trtllm"] == [1, 1 / 2, 1 / 3]
    assert told["tgi"] == [None] * 3


@pytest.mark.parametrize(("body", "tokens"), [(b"{}", 256), (b'{"max_tokens": 7}', 7), (b'{"max_tokens": 0}', 0)])
def test_an_answer_is_expected_to_be_as_long_as_it_may_or_as_answers_usually_are(body: bytes, tokens: int) -> None:
    assert request(body=body).expected_output_tokens == tokens
