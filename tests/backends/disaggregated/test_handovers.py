"""What the two legs of a request are told, by engine family, against what real engines answered."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.disaggregated import DecodeReport, Edit, Handed, Meeting, handover_of
from backends.disaggregated.bootstrap import BOOTSTRAP
from backends.disaggregated.nixl import NIXL, REFERENCE
from backends.disaggregated.trtllm import CONTEXT_FIRST

SEEN = json.loads((Path(__file__).parent / "vllm-0.32-nixl.json").read_text())
AT = Meeting(2**63 - 1, "10.0.0.1", 8998)


def applied(edit: Edit, body: dict[str, Any]) -> dict[str, Any]:
    """A body as it is after an edit."""
    kept = {name: value for name, value in body.items() if name not in edit.cut}
    return {**kept, **{name: json.loads(value) for name, value in edit.put.items()}}


def test_each_engine_family_has_its_way_and_others_have_none() -> None:
    ways = {engine: handover_of(engine) for engine in ("vllm", "sglang", "trtllm", "tgi", "reference")}
    assert ways == {"vllm": NIXL, "sglang": BOOTSTRAP, "trtllm": CONTEXT_FIRST, "tgi": None, "reference": REFERENCE}


def test_vllm_is_asked_for_one_token_without_a_stream_and_to_keep_its_blocks() -> None:
    body = {
        "messages": [],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "max_completion_tokens": 98,
        "min_tokens": 5,
        "temperature": 0,
    }
    assert applied(NIXL.prefill(AT, True), body) == {
        "messages": [],
        "temperature": 0,
        "stream": False,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "kv_transfer_params": SEEN["prefill"]["request"]["kv_transfer_params"],
    }
    assert "max_completion_tokens" not in applied(NIXL.prefill(AT, False), body)


def test_what_vllm_hands_over_reaches_the_decode_engine_byte_for_byte() -> None:
    answer = json.dumps(SEEN["prefill"]["response"], indent=3)
    handed = NIXL.read(answer.encode())
    assert handed.params is not None
    assert handed.params.decode() in answer
    edit = NIXL.decode(AT, handed, True)
    assert edit.put == {"kv_transfer_params": handed.params}
    assert json.loads(handed.params) == SEEN["decode"]["request"]["kv_transfer_params"]
    assert (handed.cached_tokens, handed.ended) == (0, False)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[1]", b'{"choices": 3}', b"\xff", b'{"kv_transfer_params": null}'),
        *(b'{"kv_transfer_params": [1]}', b'{"choices": [{"disaggregated_params": "context_only"}]}'),
    ],
)
def test_an_answer_that_hands_nothing_over_is_no_error(body: bytes) -> None:
    assert all(way.read(body).params is None for way in (NIXL, BOOTSTRAP, CONTEXT_FIRST))


@pytest.mark.parametrize(("finish", "ended"), [("stop", True), ("tool_calls", True), ("length", False), (None, False)])
def test_an_answer_that_is_over_with_its_first_token_is_told_from_a_wrong_engine(
    finish: str | None, ended: bool
) -> None:
    body = json.dumps({"choices": [{"finish_reason": finish}], "kv_transfer_params": None}).encode()
    assert NIXL.read(body) == Handed(ended=ended)


@pytest.mark.parametrize("told", ["true", "-1", "1.5", '"7"', "null"])
def test_a_count_of_cached_tokens_that_is_none_is_unknown(told: str) -> None:
    body = b'{"kv_transfer_params":{"remote_prefill_cached_tokens":%s}}' % told.encode()
    handed = NIXL.read(body)
    assert handed.params is not None
    assert handed.cached_tokens is None


@pytest.mark.parametrize(
    ("version", "told", "range_"),
    [
        ("0.32.0", 640, (640, 640)),
        ("0.31.0rc1", 0, (0, 0)),
        ("1.0.0", 64, (64, 64)),
        ("0.30.2", 640, (713, 729)),
        ("0.32.0", None, (713, 729)),
        ("unknown", 640, None),
        (None, 640, None),
    ],
)
def test_what_a_vllm_decode_engine_reports_depends_on_its_version(
    version: str | None, told: int | None, range_: tuple[int, int] | None
) -> None:
    assert NIXL.reports(DecodeReport(version, Handed(b"{}", cached_tokens=told), 640, 729, 16)) == range_


def test_the_captured_engines_report_what_is_expected_of_them() -> None:
    handed = NIXL.read(json.dumps(SEEN["prefill"]["response"]).encode())
    usage = SEEN["decode"]["response"]["usage"]
    version = SEEN["decode"]["response"]["system_fingerprint"].removeprefix("vllm-")
    seen = DecodeReport(version, handed, 0, usage["prompt_tokens"], 32)
    reported = usage["prompt_tokens_details"]["cached_tokens"]
    assert NIXL.reports(seen) == (reported, reported)


def test_both_legs_of_sglang_meet_in_one_room() -> None:
    body = {"messages": [], "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 9}
    first = applied(BOOTSTRAP.prefill(AT, True), body)
    second = applied(BOOTSTRAP.decode(AT, Handed(), True), body)
    meeting = {"bootstrap_host": "10.0.0.1", "bootstrap_port": 8998, "bootstrap_room": 2**63 - 1}
    assert first == {"messages": [], "max_tokens": 9, "stream": False, **meeting}
    assert second == {**body, **meeting}
    assert applied(BOOTSTRAP.decode(Meeting(5, "h"), Handed(), True), {})["bootstrap_port"] is None
    ranked = applied(BOOTSTRAP.decode(Meeting(5, "h", prefill_rank=3), Handed(), True), {})
    assert ranked["disagg_prefill_dp_rank"] == 3


def test_trtllm_goes_on_behind_the_first_token_of_the_context_call() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "stream_options": {}, "max_tokens": 9}
    asked = applied(CONTEXT_FIRST.prefill(AT, True), body)
    params = {"request_type": "context_only", "disagg_request_id": 2**63 - 1}
    assert asked == {"messages": body["messages"], "max_tokens": 9, "stream": False, "disaggregated_params": params}
    given = {"request_type": "context_only", "first_gen_tokens": [7], "encoded_opaque_state": "q==", "new": {"a": 1.50}}
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    answer = {
        "choices": [{"finish_reason": "length", "disaggregated_params": given}],
        "prompt_token_ids": [1, 2, 3],
        "usage": usage,
    }
    handed = CONTEXT_FIRST.read(json.dumps(answer).encode())
    told = applied(CONTEXT_FIRST.decode(AT, handed, True), body)
    expected = {**given, "request_type": "generation_only", "disagg_request_id": 2**63 - 1, "ctx_usage": usage}
    assert told == {**body, "prompt_token_ids": [1, 2, 3], "disaggregated_params": expected}
    assert b"1.5" in CONTEXT_FIRST.decode(AT, handed, True).put["disaggregated_params"]
    text = applied(CONTEXT_FIRST.decode(AT, handed, False), {"prompt": "x"})
    assert text["prompt"] == [1, 2, 3]


@pytest.mark.parametrize(("finish", "ended"), [("stop", True), ("length", False), ("not_finished", False)])
def test_trtllm_may_have_ended_with_its_first_token(finish: str, ended: bool) -> None:
    body = json.dumps({"choices": [{"finish_reason": finish, "disaggregated_params": {"a": 1}}]}).encode()
    assert CONTEXT_FIRST.read(body).ended is ended


@given(st.binary(max_size=200))
def test_whatever_an_engine_answers_is_read(body: bytes) -> None:
    for way in (NIXL, BOOTSTRAP, CONTEXT_FIRST):
        assert isinstance(way.read(body), Handed)
