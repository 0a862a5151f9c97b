"""Which header fields pass, as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.headers import CREDENTIALS, HOP_BY_HOP, SET_BY_US, own_lines, request_lines, response_headers

names = st.sampled_from(
    [b"connection", b"keep-alive", b"x-a", b"x-b", b"Host", b"TE", b"Authorization", b"content-type"]
)
values = st.sampled_from([b"1", b"x-a", b"X-B , close", b"Keep-Alive", b""])
fields = st.lists(st.tuples(names, values))
lower_fields = st.lists(st.tuples(names.map(bytes.lower), values))


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_hop_by_hop_fields_pass_in_neither_direction(name: bytes) -> None:
    assert response_headers([(name, b"v"), (b"x", b"1")]) == ((b"x", b"1"),)
    assert request_lines([(name.title(), b"v"), (b"X", b"1")]) == [b"x: 1"]


@pytest.mark.parametrize("name", [b"Authorization", b"X-Api-Key", b"api-key", b"Cookie", b"Host", b"Expect"])
def test_what_belongs_to_the_gateway_stays_there(name: bytes) -> None:
    assert request_lines([(name, b"secret")]) == []


def test_fields_named_by_any_connection_field_are_dropped_whatever_their_case() -> None:
    given_fields = [
        (b"Connection", b"X-One,  x-two"),
        (b"x-one", b"1"),
        (b"X-TWO", b"2"),
        (b"connection", b"x-3"),
        (b"X-3", b""),
    ]
    assert request_lines(given_fields) == []
    assert response_headers([(name.lower(), value) for name, value in given_fields]) == ()


def test_an_endpoint_gets_a_key_of_its_own_and_no_wish_for_compression() -> None:
    assert own_lines("ours") == [b"accept-encoding: identity", b"authorization: Bearer ours"]
    assert own_lines(None) == [b"accept-encoding: identity"]


def test_an_endpoints_cookies_do_not_reach_clients() -> None:
    assert response_headers([(b"set-cookie", b"a=1"), (b"content-length", b"3")]) == ((b"content-length", b"3"),)


@given(lower_fields)
def test_order_values_and_duplicates_of_what_passes_are_kept(sent: list[tuple[bytes, bytes]]) -> None:
    remaining = iter(sent)
    assert all(item in remaining for item in response_headers(sent))


@given(fields)
def test_a_request_passes_on_what_an_answer_would_but_for_what_is_the_gateways(sent: list[tuple[bytes, bytes]]) -> None:
    passed = response_headers([(name.lower(), value) for name, value in sent])
    assert request_lines(sent) == [b": ".join(field) for field in passed if field[0] not in CREDENTIALS | SET_BY_US]


@given(lower_fields)
def test_nothing_passes_that_a_connection_field_names(sent: list[tuple[bytes, bytes]]) -> None:
    named = {token.strip().lower() for name, value in sent if name == b"connection" for token in value.split(b",")}
    assert named.isdisjoint(name for name, _ in response_headers(sent))
