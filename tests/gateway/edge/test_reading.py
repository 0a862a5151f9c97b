"""Bodies of clients: what is read, what is refused, and what reaches the engine."""

import json
from datetime import UTC, datetime

import pytest

from gateway.edge.control_fields import (
    ADAPTER_FIELDS,
    ALTERING_FIELDS,
    ENGINE_CONTROL_FIELDS,
    ENGINE_CONTROL_HEADERS,
)
from gateway.edge.reading import LONGEST_OUTPUT_TOKENS, Arrival, read_request
from gateway.edge.upstream import outgoing, upstream_headers
from gateway.errors import BadRequest
from gateway.types import Headers, InferenceRequest, KeyId, Reason, RequestId, Route, Tenant, TenantId

TENANT = Tenant(TenantId("acme"), KeyId("acme-1"), "acme", "5a17")
CHAT = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]'


def read(body: bytes, route: Route = Route.CHAT, headers: Headers = ()) -> InferenceRequest:
    opened_at = datetime(2026, 1, 1, tzinfo=UTC)
    return read_request(Arrival(RequestId("01ID"), TENANT, route, route.value, headers, 0.0, opened_at), body)


def upstream_body(request: InferenceRequest, *, inject_salt: bool) -> bytes:
    return outgoing(request, natively=True, inject_salt=inject_salt).body


def test_a_chat_is_read_with_its_unknown_fields_left_alone() -> None:
    request = read(CHAT + b',"stream":true,"max_tokens":5,"max_completion_tokens":7,"wild":{"a":[1]}}')
    assert (request.model, request.stream, request.max_output_tokens) == ("m", True, 7)
    assert request.prompt.messages == [{"role": "user", "content": "Hi"}]


def test_a_completion_takes_text_and_token_ids() -> None:
    assert read(b'{"model":"m","prompt":"Hi"}', Route.COMPLETIONS).prompt.prompt == "Hi"
    assert read(b'{"model":"m","prompt":[1,2]}', Route.COMPLETIONS).prompt.prompt == [1, 2]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b'{"model":"\xff","messages":[]}', None),
        (b'{"model":"m"}', "messages"),
        (b'{"model":5,"messages":[]}', "model"),
        (b'{"model":"m","messages":"Hi"}', "messages"),
        (b'{"model":"m","messages":["Hi"]}', "messages[0]"),
        (CHAT + b',"stream":[]}', "stream"),
        (CHAT + b',"stream_options":5}', "stream_options"),
        (CHAT + b',"max_tokens":"7"}', "max_tokens"),
        (CHAT + b',"temperature":NaN}', None),
        (CHAT + b"} trailing", None),
        (CHAT + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(body: bytes, param: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        read(body)
    assert refused.value.param == param
    assert json.loads(refused.value.body())["error"]["type"] == "invalid_request_error"


def test_a_refusal_never_repeats_the_prompt() -> None:
    with pytest.raises(BadRequest) as refused:
        read(b'{"model":"m","messages":[{"role":"user","content":"my secret"}],"stream":["my secret"]}')
    assert "secret" not in str(refused.value)


def test_a_plain_request_gains_the_salt_and_nothing_else() -> None:
    body = CHAT + b', "temperature" : 1.0}'
    assert upstream_body(read(body), inject_salt=True) == CHAT + b', "temperature" : 1.0,"cache_salt":"5a17"}'


def test_a_request_for_an_engine_without_salts_goes_on_byte_for_byte() -> None:
    body = CHAT + b', "temperature" : 1.0}'
    assert upstream_body(read(body), inject_salt=False) == body


@pytest.mark.parametrize("given", [b"", b',"stream_options":null', b',"stream_options":{"include_usage":false}'])
def test_usage_is_asked_for_in_every_stream(given: bytes) -> None:
    sent = json.loads(upstream_body(read(CHAT + b',"stream":true' + given + b"}"), inject_salt=False))
    assert sent["stream_options"]["include_usage"] is True


def test_a_client_who_asks_for_usage_itself_is_left_as_it_is() -> None:
    body = CHAT + b',"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}'
    request = read(body)
    assert request.client_wants_usage
    assert upstream_body(request, inject_salt=False) == body


@pytest.mark.parametrize("field", sorted(ENGINE_CONTROL_FIELDS))
def test_a_client_cannot_set_(field: str) -> None:
    body = CHAT + b',"%s":"mine","keep":1}' % field.encode()
    sent = json.loads(upstream_body(read(body), inject_salt=False))
    assert field not in sent
    assert sent["keep"] == 1


def test_a_clients_own_salt_is_replaced_by_the_groups() -> None:
    sent = upstream_body(read(CHAT + b',"cache_salt":"mine","cache\\u005fsalt":"mine"}'), inject_salt=True)
    assert sent == CHAT + b',"cache_salt":"5a17"}'


def test_a_limit_of_any_length_weighs_as_load_no_more_than_an_answer_can_have() -> None:
    body = CHAT + b',"max_tokens":' + b"9" * 400 + b"}"
    request = read(body)
    assert request.max_output_tokens == LONGEST_OUTPUT_TOKENS
    assert upstream_body(request, inject_salt=False) == body


@pytest.mark.parametrize(
    "junk",
    [b',"priority":1,"x":"\xff"}', b',"stream":true,"stream_options":{},"x":"\xff"}'],
)
def test_what_was_only_passed_over_and_is_not_utf_8_is_refused_where_it_must_be_walked(junk: bytes) -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        upstream_body(read(CHAT + junk), inject_salt=True)


def test_what_was_only_passed_over_is_the_engines_to_judge() -> None:
    assert upstream_body(read(CHAT + b',"\xff":1}'), inject_salt=True) == CHAT + b',"\xff":1,"cache_salt":"5a17"}'


def test_every_field_that_steers_an_engine_is_looked_for() -> None:
    body = CHAT + b"".join(b',"%s":null' % name.encode() for name in sorted(ENGINE_CONTROL_FIELDS)) + b"}"
    assert read(body).steering == ENGINE_CONTROL_FIELDS
    assert upstream_body(read(body), inject_salt=False) == CHAT + b"}"
    assert read(CHAT + b',"cache\\u005fsalt":"mine"}').steering == {"cache_salt"}
    assert read(CHAT + b"}").steering == frozenset()


@pytest.mark.parametrize("name", sorted(ENGINE_CONTROL_HEADERS - {b"x-request-id"}))
def test_a_client_cannot_send_the_header_(name: bytes) -> None:
    sent = upstream_headers(read(CHAT + b"}", headers=((name, b"1"), (b"keep", b"1"))))
    assert sent == ((b"keep", b"1"), (b"x-request-id", b"01ID"))


@pytest.mark.parametrize("field", ALTERING_FIELDS)
def test_an_engine_that_is_told_to_read_other_tokens_leaves_us_without_affinity_(field: str) -> None:
    assert read(CHAT + b',"%s":[1]}' % field.encode()).blind is Reason.ENGINE_ALTERS
    assert read(CHAT + b',"%s":null}' % field.encode()).blind is None


@pytest.mark.parametrize("field", ADAPTER_FIELDS)
def test_an_adapter_in_the_body_is_part_of_the_root_(field: str) -> None:
    one, other = (read(CHAT + b',"%s":"%s"}' % (field.encode(), name)).adapter for name in (b"a", b"b"))
    assert one is not None
    assert one != other
    assert read(CHAT + b"}").adapter is None


def test_an_adapter_is_the_same_however_it_is_spelled() -> None:
    one = read(CHAT + b',"lora_request":{"lora_name":"a","lora_int_id":1}}')
    other = read(CHAT + b',"lora_request": {"lora_int_id":1, "lora_name":"\\u0061"}}')
    assert one.adapter == other.adapter


@pytest.mark.parametrize("prompts", [b'["a","b"]', b"[[1,2],[3]]"])
def test_several_prompts_in_one_request_have_no_common_prefix_to_go_by(prompts: bytes) -> None:
    assert read(b'{"model":"m","prompt":%s}' % prompts, Route.COMPLETIONS).blind is Reason.PROMPT_BATCH


@pytest.mark.parametrize("prompt", [b'["a"]', b"[[1,2]]", b"[1,2]", b'"a"', b"[]"])
def test_one_prompt_in_a_list_is_one_prompt(prompt: bytes) -> None:
    assert read(b'{"model":"m","prompt":%s}' % prompt, Route.COMPLETIONS).blind is None


@pytest.mark.parametrize(("limit", "read_as"), [(b"10.0", 10), (b"1e1", 10), (b"-1", None), (b"0", 0), (b"null", None)])
def test_limits_are_read_as_laxly_as_engines_do(limit: bytes, read_as: int | None) -> None:
    assert read(CHAT + b',"max_tokens":' + limit + b"}").max_output_tokens == read_as


@pytest.mark.parametrize(("value", "streams"), [(b'"True"', True), (b"1", True), (b"0", False), (b'"off"', False)])
def test_a_wish_for_a_stream_is_read_as_laxly_as_engines_do(value: bytes, streams: bool) -> None:
    assert read(CHAT + b',"stream":' + value + b"}").stream is streams


@pytest.mark.parametrize("prompt", [b"null", b'{"prompt_string":"Hi"}', b"5"])
def test_prompts_of_other_forms_are_the_engines_to_judge(prompt: bytes) -> None:
    body = b'{"model":"m","prompt":' + prompt + b"}"
    assert upstream_body(read(body, Route.COMPLETIONS), inject_salt=False) == body


def test_a_byte_order_mark_is_read_past_as_engines_do() -> None:
    request = read(b"\xef\xbb\xbf" + CHAT + b"}")
    assert upstream_body(request, inject_salt=True) == CHAT + b',"cache_salt":"5a17"}'


def test_half_an_emoji_is_read_as_a_replacement_character_and_passed_as_it_came() -> None:
    body = b'{"model":"m","priority":1,"messages":[{"role":"user","content":"a\\ud83d \\ud83d\\ude00 \\\\ud83d"}]}'
    request = read(body)
    assert request.prompt.messages == [{"role": "user", "content": "a\ufffd 😀 \\ud83d"}]
    assert upstream_body(request, inject_salt=False) == body.replace(b'"priority":1,', b"")


def test_nesting_a_thousand_deep_is_refused_and_crashes_nothing() -> None:
    deep = b',"x":' + b"[" * 1000 + b"]" * 1000 + b"}"
    for route, head in ((Route.CHAT, CHAT), (Route.MESSAGES, CHAT), (Route.RESPONSES, b'{"model":"m","input":"Hi"')):
        with pytest.raises(BadRequest, match="deeply"):
            upstream_body(read(head + deep, route), inject_salt=False)


def test_messages_of_anthropic_become_the_chat_that_asks_the_same() -> None:
    body = b'{"model":"m","max_tokens":7,"system":"Be brief.","messages":[{"role":"user","content":"Hi"}],"wild":1}'
    request = read(body, Route.MESSAGES)
    assert request.max_output_tokens == 7
    assert request.prompt.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert upstream_body(request, inject_salt=True) == body[:-1] + b',"cache_salt":"5a17"}'


def test_a_foreign_dialect_is_said_in_chat_where_the_engine_speaks_nothing_else() -> None:
    body = b'{"model":"m","input":"Hi","instructions":"Be brief.","cache_salt":"mine","stream":true}'
    sent = outgoing(read(body, Route.RESPONSES), natively=False, inject_salt=True)
    chat = json.loads(sent.body)
    assert (sent.path, sent.translator is not None) == ("/v1/chat/completions", True)
    assert [message["role"] for message in chat["messages"]] == ["system", "user"]
    assert (chat["cache_salt"], chat["stream_options"]) == ("5a17", {"include_usage": True})


def test_what_only_a_keeper_of_responses_can_do_is_known_before_it_is_sent_anywhere() -> None:
    request = read(b'{"model":"m","input":"Hi","previous_response_id":"resp_1"}', Route.RESPONSES)
    assert (request.blind, request.previous_response_id) == (Reason.PREVIOUS_RESPONSE, "resp_1")
    assert not request.translatable
    assert read(b'{"model":"m","input":"Hi"}', Route.RESPONSES).translatable


@pytest.mark.parametrize("given", [b'"input":"Hi"', b'"input":["Hi","Ho"]', b'"input":[1,2]', b'"input":[[1],[2]]'])
def test_embeddings_are_read_and_pass_as_they_are(given: bytes) -> None:
    body = b'{"model":"m",%s}' % given
    request = read(body, Route.EMBEDDINGS)
    assert request.blind is Reason.NO_KV
    assert upstream_body(request, inject_salt=False) == body


def test_headers_that_steer_an_engine_are_taken_out_and_the_request_id_is_ours() -> None:
    headers = (
        (b"x-data-parallel-rank", b"3"),
        (b"x-request-id", b"mine"),
        (b"x-override-priority", b"9"),
        (b"traceparent", b"00-1"),
    )
    assert upstream_headers(read(CHAT + b"}", headers=headers)) == (
        (b"traceparent", b"00-1"),
        (b"x-request-id", b"01ID"),
    )


@pytest.mark.parametrize(
    ("fields", "is_blind"),
    [
        (b',"echo":true,"logprobs":1', True),
        (b',"echo":true,"logprobs":0', True),
        (b',"echo":true', False),
        (b',"logprobs":1', False),
        (b',"echo":false,"logprobs":1', False),
        (b',"echo":true,"logprobs":null', False),
    ],
)
def test_a_completion_that_wants_the_log_probabilities_of_its_prompt_reads_no_cache(
    fields: bytes, is_blind: bool
) -> None:
    request = read(b'{"model":"m","prompt":"p"' + fields + b"}", route=Route.COMPLETIONS)
    assert (request.blind is Reason.ENGINE_ALTERS) is is_blind
