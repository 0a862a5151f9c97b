"""The proof of token parity: what is counted, when trust is lost and found again, and that labels stay few."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.parity import SHAPES, WINDOW, ParityBook, ParityResult, shape_of
from gateway.telemetry import Telemetry
from gateway.types import Reason, Route, TokenSource
from prefix_index.prompt import PromptView

RIGHT = ParityResult(
    at=datetime(2026, 11, 1, tzinfo=UTC),
    request_id="r1",
    endpoint_id="e0",
    model="m",
    shape="chat",
    source=TokenSource.LOCAL,
    ours_tokens=40,
    engine_tokens=40,
)
WRONG = replace(RIGHT, ours_tokens=37)
RATIO = "prefixgate_token_parity_ratio"


def book(**options: int) -> ParityBook:
    return ParityBook(Telemetry(), **options)


def sample(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


def chat(*messages: dict[str, object], **fields: Any) -> PromptView:
    return PromptView(messages=list(messages), **fields)


USER: dict[str, object] = {"role": "user", "content": "Hello"}
ASSISTANT: dict[str, object] = {"role": "assistant", "content": "Hi"}
PICTURE: dict[str, object] = {"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image_url"}]}


@pytest.mark.parametrize(
    ("route", "prompt", "shape"),
    [
        ("/v1/chat/completions", chat(USER), "chat"),
        ("/v1/chat/completions", chat({"role": "system", "content": "Be"}, USER, USER), "chat"),
        ("/v1/chat/completions", chat(USER, ASSISTANT, USER), "chat+multi_turn"),
        ("/v1/chat/completions", chat(USER, {"role": "tool", "content": "12"}), "chat+multi_turn"),
        ("/v1/chat/completions", chat(USER, tools=[{}]), "chat+tools"),
        ("/v1/chat/completions", chat(USER, tools=[]), "chat"),
        ("/v1/chat/completions", chat({"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}), "chat"),
        ("/v1/chat/completions", chat(PICTURE), "chat+media"),
        ("/v1/messages", chat(PICTURE, ASSISTANT, tools=[{}]), "messages+tools+media+multi_turn"),
        ("/v1/responses", chat({"role": "user", "content": [{"type": "input_text"}]}), "responses"),
        ("/v1/completions", PromptView(prompt="Once"), "completions"),
        ("/v1/completions", PromptView(prompt=[1, 2]), "completions"),
        ("other", PromptView(prompt="Once"), "completions"),
        ("other", chat(USER), "chat"),
    ],
)
def test_a_shape_names_dialect_tools_media_and_turns(route: str, prompt: PromptView, shape: str) -> None:
    assert shape_of(route, prompt) == shape


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["assistant", "text", "image"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "content", "x"]), JSON, max_size=3), max_size=4)


@given(route=st.sampled_from([*Route]) | st.text(), messages=MESSAGES, tools=st.none() | st.lists(JSON, max_size=2))
def test_whatever_a_client_sends_its_shape_is_one_of_thirty_two(
    route: str, messages: list[dict[str, object]], tools: list[object] | None
) -> None:
    assert shape_of(route, PromptView(messages=messages, tools=tools)) in SHAPES
    assert len(SHAPES) == 32


def test_series_stay_few_whatever_is_compared() -> None:
    telemetry = Telemetry()
    parity = ParityBook(telemetry)
    for number in range(2000):
        shape = sorted(SHAPES)[number % len(SHAPES)]
        parity.compare(replace(RIGHT, request_id=f"r{number}", endpoint_id=f"e{number % 7}", shape=shape))
        parity.compare(replace(WRONG, request_id=f"w{number}", ours_tokens=number, shape=shape))
    page = telemetry.exposition().decode().splitlines()
    assert sum(line.startswith("prefixgate_token_parity_ratio{") for line in page) == 32
    assert sum(line.startswith("prefixgate_token_comparisons_total{") for line in page) == 64
    assert len(parity.recent()) == 256


def test_reasons_and_sources_have_a_series_each_and_no_other() -> None:
    telemetry = Telemetry()
    for _ in range(2):
        for reason in Reason:
            telemetry.reasons(reason).inc()
        for source in (*TokenSource, "none"):
            telemetry.prompts(source).inc()
    page = telemetry.exposition().decode().splitlines()
    reasons = [line for line in page if line.startswith("prefixgate_reasons_total{")]
    assert sorted(reasons) == sorted(f'prefixgate_reasons_total{{reason="{reason.value}"}} 2.0' for reason in Reason)
    assert sum(line.startswith("prefixgate_prompts_total{") for line in page) == 4


def test_comparisons_are_counted_by_model_shape_and_outcome() -> None:
    telemetry = Telemetry()
    parity = ParityBook(telemetry)
    assert sample(telemetry, RATIO, model="m", shape="chat") is None
    for result in (RIGHT, RIGHT, WRONG, replace(RIGHT, shape="chat+tools"), replace(WRONG, model="n")):
        parity.compare(result)
    counted = "prefixgate_token_comparisons_total"
    assert sample(telemetry, counted, model="m", shape="chat", outcome="equal") == 2
    assert sample(telemetry, counted, model="m", shape="chat", outcome="different") == 1
    assert sample(telemetry, counted, model="n", shape="chat", outcome="different") == 1
    assert sample(telemetry, RATIO, model="m", shape="chat") == pytest.approx(2 / 3)
    assert sample(telemetry, RATIO, model="m", shape="chat+tools") == 1.0
    assert sample(telemetry, RATIO, model="n", shape="chat") == 0.0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 200)), min_size=1, max_size=8))
@example([(False, 200), (True, 200), (False, 1), (True, 56)])
def test_the_ratio_looks_back_on_the_last_256_comparisons(runs: list[tuple[bool, int]]) -> None:
    telemetry = Telemetry()
    parity = ParityBook(telemetry)
    outcomes = [equal for equal, length in runs for _ in range(length)]
    for equal in outcomes:
        parity.compare(RIGHT if equal else WRONG)
    last = outcomes[-WINDOW:]
    assert sample(telemetry, RATIO, model="m", shape="chat") == sum(last) / len(last)


def test_trust_is_lost_after_a_run_of_differences_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    parity = book()
    with caplog.at_level(logging.WARNING, logger="prefixgate"):
        for result in [WRONG] * 7 + [RIGHT] + [WRONG] * 7:
            parity.compare(result)
        assert not parity.is_degraded("m", "chat")
        assert caplog.records == []
        for _ in range(20):
            parity.compare(WRONG)
    assert parity.is_degraded("m", "chat")
    assert parity.degraded() == {"m": ["chat"]}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert vars(record)["fields"] == {
        "model": "m",
        "shape": "chat",
        "endpoint": "e0",
        "request_id": "r1",
        "ours_tokens": 37,
        "engine_tokens": 40,
        "in_a_row": 8,
    }


def test_other_shapes_and_models_keep_their_trust() -> None:
    parity = book(run_to_degrade=2)
    for _ in range(2):
        for result in (replace(WRONG, shape="chat+tools"), WRONG, replace(WRONG, model="a"), replace(RIGHT, shape="x")):
            parity.compare(result)
    assert parity.degraded() == {"a": ["chat"], "m": ["chat", "chat+tools"]}
    assert not parity.is_degraded("m", "x")
    assert not parity.is_degraded("m", "completions")


def test_only_local_tokens_lose_trust_and_only_they_break_a_run() -> None:
    telemetry = Telemetry()
    parity = ParityBook(telemetry, run_to_degrade=3)
    for _ in range(9):
        parity.compare(replace(WRONG, source=TokenSource.ENGINE))
    assert not parity.is_degraded("m", "chat")
    assert sample(telemetry, RATIO, model="m", shape="chat") == 0.0
    for _ in range(3):
        parity.compare(WRONG)
        parity.compare(replace(RIGHT, source=TokenSource.ENGINE))
    assert parity.is_degraded("m", "chat")


def test_trust_comes_back_after_as_long_a_run_of_equal_counts(caplog: pytest.LogCaptureFixture) -> None:
    parity = book(run_to_degrade=3)
    for result in [WRONG] * 5 + [RIGHT] * 2 + [WRONG] + [RIGHT] * 2:
        parity.compare(result)
    assert parity.is_degraded("m", "chat")
    parity.compare(RIGHT)
    assert not parity.is_degraded("m", "chat")
    assert caplog.messages == ["local tokens are not the engine's", "local tokens are the engine's again"]
    assert parity.degraded() == {}


def test_a_new_engine_is_trusted_until_it_proves_us_wrong() -> None:
    parity = book(run_to_degrade=2)
    for result in (WRONG, WRONG, replace(WRONG, model="n"), replace(WRONG, model="n")):
        parity.compare(result)
    parity.trust_again("m")
    parity.trust_again("unknown")
    assert parity.degraded() == {"n": ["chat"]}
    parity.compare(WRONG)
    assert not parity.is_degraded("m", "chat")
    parity.compare(WRONG)
    assert parity.is_degraded("m", "chat")


def test_differences_are_kept_newest_first_up_to_a_bound() -> None:
    parity = book(ring=3)
    for number in range(5):
        parity.compare(replace(WRONG, request_id=f"r{number}"))
        parity.compare(RIGHT)
    assert [result.request_id for result in parity.recent()] == ["r4", "r3", "r2"]
    assert {(result.difference_tokens, result.equal) for result in parity.recent()} == {(-3, False)}
