"""Bodies of OpenAI clients: what is read, what is refused, and what reaches the engine."""

import json
from datetime import UTC, datetime

import pytest

from gateway.edge.openai import (
    ENGINE_CONTROL_FIELDS,
    LONGEST_OUTPUT_TOKENS,
    read_request,
    upstream_body,
    upstream_headers,
)
from gateway.errors import BadRequest
from gateway.types import Headers, InferenceRequest, KeyId, RequestId, Route, Tenant, TenantId

TENANT = Tenant(TenantId("acme"), KeyId("acme-1"), "acme", "5a17")
CHAT = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]'


def read(body: bytes, route: Route = Route.CHAT, headers: Headers = ()) -> InferenceRequest:
    return read_request(
        route,
        body,
        id=RequestId("01ID"),
        tenant=TENANT,
        path=route.value,
        headers=headers,
        started_s=0.0,
        opened_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


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
        (b'\xef\xbb\xbf{"model":"m","messages":[]}', None),
        (b'{"model":"m"}', None),
        (b'{"model":5,"messages":[]}', "model"),
        (b'{"model":"m","messages":"Hi"}', "messages"),
        (b'{"model":"m","messages":["Hi"]}', "messages[0]"),
        (CHAT + b',"stream":"yes"}', "stream"),
        (CHAT + b',"stream_options":5}', "stream_options"),
        (CHAT + b',"max_tokens":-1}', "max_tokens"),
        (CHAT + b',"max_tokens":1.5}', "max_tokens"),
        (CHAT + b',"temperature":NaN}', None),
        (CHAT + b',"x":"\\ud800"}', None),
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
        read(b'{"model":"m","messages":[{"role":"user","content":"my secret"}],"stream":"my secret"}')
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
    [b',"priority":1,"x":"\xff"}', b',"stream":true,"stream_options":{},"x":"\xff"}', b',"\xff":1}'],
)
def test_what_was_only_passed_over_and_is_not_utf_8_is_refused_where_it_must_be_walked(junk: bytes) -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        upstream_body(read(CHAT + junk), inject_salt=True)


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
