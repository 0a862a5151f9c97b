"""The messages that we write down are Envoy's own: the same numbers, types and alternatives."""

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as official
from envoy.type.v3 import http_status_pb2
from hypothesis import given
from hypothesis import strategies as st

from gateway.epp import protocol
from gateway.epp.messages import body_reply, head_reply, immediate_reply, read, serialize, streamed_replies
from gateway.epp.types import DESTINATION, METADATA, BodyMode, BodyShown, Changes, HeadShown

FOUND = {
    name: next(getattr(module, name) for module in (official, base_pb2, http_status_pb2) if hasattr(module, name))
    for name in protocol.MESSAGES
}


@pytest.mark.parametrize("name", sorted(protocol.MESSAGES))
def test_each_message_is_the_official_one(name: str) -> None:
    theirs = FOUND[name].DESCRIPTOR.fields_by_name
    ours = protocol.CLASSES[name].DESCRIPTOR.fields_by_name
    enumeration, number = theirs["code" if name == "HttpStatus" else next(iter(theirs))].TYPE_ENUM, 5
    for field, one in ours.items():
        other = theirs[field]
        expected = number if other.type == enumeration else other.type
        assert (one.number, one.type, one.is_repeated) == (other.number, expected, other.is_repeated)
        assert (one.containing_oneof is None) == (other.containing_oneof is None)
        if one.message_type is not None and not one.message_type.GetOptions().map_entry:
            assert one.message_type.name == other.message_type.name


def test_the_values_of_enumerations_are_the_official_ones() -> None:
    actions = base_pb2.HeaderValueOption
    assert (protocol.ADD, protocol.REPLACE) == (
        actions.APPEND_IF_EXISTS_OR_ADD,
        actions.OVERWRITE_IF_EXISTS_OR_ADD,
    )
    assert set(http_status_pb2.StatusCode.values()) - {0} == protocol.STATUSES
    modes = official.ProtocolConfiguration.DESCRIPTOR.fields_by_name["request_body_mode"].enum_type
    assert {mode.name: mode.value for mode in BodyMode} == {one.name: one.number for one in modes.values}


NAMES = st.text("abc-", min_size=1, max_size=4)
FIELDS = st.lists(st.tuples(NAMES.map(str.encode), st.binary(max_size=5)), max_size=4).map(tuple)


@given(fields=FIELDS, remove=st.lists(NAMES.map(str.encode), max_size=3).map(tuple), body=st.binary(max_size=9))
def test_what_we_say_is_what_the_official_messages_read(
    fields: tuple[tuple[bytes, bytes], ...], remove: tuple[bytes, ...], body: bytes
) -> None:
    changes = Changes(fields, remove)
    heard = official.ProcessingResponse.FromString(
        serialize(head_reply(of_answer=False, changes=changes, addresses=("10.0.0.1:8000", "10.0.0.2:8000")))
    )
    mutation = heard.request_headers.response.header_mutation
    assert [(one.header.key.encode(), one.header.raw_value) for one in mutation.set_headers] == list(fields)
    assert [name.encode() for name in mutation.remove_headers] == list(remove)
    named = heard.dynamic_metadata.fields[METADATA].struct_value.fields[DESTINATION].string_value
    assert named == "10.0.0.1:8000,10.0.0.2:8000"
    heard = official.ProcessingResponse.FromString(serialize(body_reply(of_answer=True, body=body)))
    assert heard.response_body.response.body_mutation.body == body
    assert heard.response_body.response.body_mutation.clear_body is (not body)
    heard = official.ProcessingResponse.FromString(serialize(immediate_reply(429, fields, body)))
    assert (heard.immediate_response.status.code, heard.immediate_response.body) == (429, body)
    pieces = [serialize(one) for one in streamed_replies(body * 20_000, of_answer=True, ends=True)]
    parts = [official.ProcessingResponse.FromString(one).response_body.response.body_mutation for one in pieces]
    assert b"".join(part.streamed_response.body for part in parts) == body * 20_000
    assert [part.streamed_response.end_of_stream for part in parts] == [False] * (len(parts) - 1) + [True]


@given(fields=FIELDS, body=st.binary(max_size=9), ends=st.booleans())
def test_what_the_official_messages_say_is_what_we_read(
    fields: tuple[tuple[bytes, bytes], ...], body: bytes, ends: bool
) -> None:
    message = official.ProcessingRequest(observability_mode=True)
    for name, value in fields:
        message.response_headers.headers.headers.add(key=name.decode(), raw_value=value)
    message.response_headers.end_of_stream = ends
    message.attributes["envoy.filters.http.ext_proc"].update({"upstream.address": "10.0.0.1:8000"})
    shown = read(protocol.ProcessingRequest.FromString(message.SerializeToString()))
    assert isinstance(shown, HeadShown)
    assert (shown.of_answer, shown.fields, shown.ends) == (True, fields, ends)
    assert (shown.context.observes, shown.context.served) == (True, "10.0.0.1:8000")
    message = official.ProcessingRequest(request_body=official.HttpBody(body=body, end_of_stream=ends))
    shown = read(protocol.ProcessingRequest.FromString(message.SerializeToString()))
    assert shown == BodyShown(False, body, ends)
