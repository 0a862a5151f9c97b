"""Envoy's messages: read into our nouns, and written. The only module that knows `protocol.py`.

ProcessingRequest --read--> Shown           replies --(functions)--> ProcessingResponse, as `object` to everyone else
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from gateway.epp import protocol as wire
from gateway.epp.errors import ProtocolBroken
from gateway.epp.types import (
    ADDRESS,
    DESTINATION,
    DETAILS,
    METADATA,
    SERVED,
    SUBSET,
    SUBSET_METADATA,
    BodyMode,
    BodyShown,
    Changes,
    Context,
    HeadShown,
    Modes,
    Shown,
    TrailersShown,
)
from gateway.message_classes import ONE_OF
from gateway.types import Headers

Reply = object
"""A message to the gateway in front; nobody looks into it."""
SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
PIECE_BYTES: Final = 62_000
"""Longest piece of a body in one reply: Envoy takes 64 KiB at a time."""
_OTHER_STATUS: Final = 500

parse: Final = cast("Callable[[bytes], object]", wire.ProcessingRequest.FromString)
"""Bytes of the wire to a message. Raises protobuf's error, which gRPC turns into a status."""
serialize: Final = cast("Callable[[object], bytes]", wire.ProcessingResponse.SerializeToString)


def read(message: object) -> Shown:
    """What a message shows. Raises `ProtocolBroken` where it shows nothing that is known."""
    shown = cast("Any", message)
    match shown.WhichOneof(ONE_OF):
        case "request_headers":
            return _head(shown, shown.request_headers, of_answer=False)
        case "response_headers":
            return _head(shown, shown.response_headers, of_answer=True)
        case "request_body":
            return BodyShown(False, shown.request_body.body, shown.request_body.end_of_stream)
        case "response_body":
            return BodyShown(True, shown.response_body.body, shown.response_body.end_of_stream)
        case "request_trailers":
            return TrailersShown(False)
        case "response_trailers":
            return TrailersShown(True)
        case _:
            raise ProtocolBroken("a message that shows nothing")


def _head(message: Any, head: Any, *, of_answer: bool) -> HeadShown:
    fields = tuple((one.key.lower().encode("latin-1", "replace"), _value(one)) for one in head.headers.headers)
    return HeadShown(of_answer, fields, head.end_of_stream, _context(message))


def _value(field: Any) -> bytes:
    raw: bytes = field.raw_value
    return raw or field.value.encode("utf-8", "surrogatepass")


def _context(message: Any) -> Context:
    modes = None
    if message.HasField("protocol_config"):
        told = message.protocol_config
        modes = Modes(_mode(told.request_body_mode), _mode(told.response_body_mode))
    offered = served = None
    if message.HasField("metadata_context"):
        metadata = message.metadata_context.filter_metadata
        if SUBSET_METADATA in metadata and SUBSET in metadata[SUBSET_METADATA].fields:
            offered = frozenset(_addresses(metadata[SUBSET_METADATA].fields[SUBSET]))
        if METADATA in metadata and SERVED in metadata[METADATA].fields:
            served = metadata[METADATA].fields[SERVED].string_value or None
    details = None
    for attributes in message.attributes.values():
        if served is None and ADDRESS in attributes.fields:
            served = attributes.fields[ADDRESS].string_value or None
        if DETAILS in attributes.fields:
            details = attributes.fields[DETAILS].string_value or None
    return Context(offered, served, details, modes, message.observability_mode)


def _mode(number: int) -> BodyMode:
    try:
        return BodyMode(number)
    except ValueError:
        raise ProtocolBroken(f"a body mode of the number {number}, which is none that is known") from None


def _addresses(value: Any) -> Iterable[str]:
    """A list of texts, or one text with commas between, as some gateways write it."""
    said = [one.string_value for one in value.list_value.values] or value.string_value.split(",")
    return (address.strip() for address in said if address.strip())


def head_reply(*, of_answer: bool, changes: Changes | None = None, addresses: Iterable[str] = ()) -> Reply:
    """The reply to a head. `addresses`: where the request is to go."""
    common = wire.CommonResponse()
    if changes is not None:
        _write(common.header_mutation, changes)
    reply = wire.ProcessingResponse()
    (reply.response_headers if of_answer else reply.request_headers).response.CopyFrom(common)
    return _told(reply, addresses)


def body_reply(
    *, of_answer: bool, body: bytes | None = None, changes: Changes | None = None, addresses: Iterable[str] = ()
) -> Reply:
    """The reply to a part of a body, or to all of it; `body` takes its place, None: as it is."""
    common = wire.CommonResponse()
    if changes is not None:
        _write(common.header_mutation, changes)
    if body is not None:
        if body:
            common.body_mutation.body = body
        else:
            common.body_mutation.clear_body = True
    reply = wire.ProcessingResponse()
    (reply.response_body if of_answer else reply.request_body).response.CopyFrom(common)
    return _told(reply, addresses)


def streamed_replies(body: bytes, *, of_answer: bool, ends: bool) -> Iterable[Reply]:
    """A part of a body that goes its own way (FULL_DUPLEX_STREAMED), in pieces; at least one where it `ends`."""
    for at in range(0, max(len(body), 1 if ends else 0), PIECE_BYTES):
        reply = wire.ProcessingResponse()
        common = (reply.response_body if of_answer else reply.request_body).response
        piece = common.body_mutation.streamed_response
        piece.body = body[at : at + PIECE_BYTES]
        piece.end_of_stream = ends and at + PIECE_BYTES >= len(body)
        yield reply


def trailers_reply(*, of_answer: bool) -> Reply:
    """The reply to trailers, which stay as they are."""
    reply = wire.ProcessingResponse()
    (reply.response_trailers if of_answer else reply.request_trailers).SetInParent()
    return reply


def immediate_reply(status: int, fields: Headers, body: bytes) -> Reply:
    """An answer of our own, in place of any other. A status that Envoy has no name for becomes 500."""
    reply = wire.ProcessingResponse()
    answer = reply.immediate_response
    answer.status.code = status if status in wire.STATUSES else _OTHER_STATUS
    _write(answer.headers, Changes(set=fields))
    answer.body = body
    answer.details = "prefixgate"
    return reply


def _told(reply: Any, addresses: Iterable[str]) -> Reply:
    named = ",".join(addresses)
    if named:
        reply.dynamic_metadata.fields[METADATA].struct_value.fields[DESTINATION].string_value = named
    return reply


def _write(mutation: Any, changes: Changes) -> None:
    seen: set[bytes] = set()
    for name, value in changes.set:
        option = mutation.set_headers.add()
        option.header.key = name.decode("latin-1")
        option.header.raw_value = value
        option.append_action = wire.ADD if name in seen else wire.REPLACE
        seen.add(name)
    mutation.remove_headers.extend(name.decode("latin-1") for name in changes.remove)
