"""Envoy's messages of ext-proc, as far as they are read and written here, as protobuf makes them of their numbers.

A package (`xds-protos`) has all of Envoy's, but brings its own files for `google`, `opentelemetry` and others, which
lie over those of the packages that these are of. So the few that are needed are written down, under a name of our own;
what is not named is passed over when it comes. A test holds them against the official ones, and `make epp-test` against
a real Envoy.

Numbers and types are those of `envoy/service/ext_proc/v3/external_processor.proto` and what it imports. Enumerations
are numbers here.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "prefixgate.extproc"
_STRUCT: Final = "google.protobuf.Struct"
_KINDS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "number": FieldDescriptorProto.TYPE_INT32,
    "text": FieldDescriptorProto.TYPE_STRING,
}
Fields = Mapping[str, tuple[int, str]]
"""Numbers and types by name. `*`: any number of times; `{}`: by text; `?`: one of those of the message that have it."""
MESSAGES: Final[Mapping[str, Fields]] = {
    "HeaderValue": {"key": (1, "text"), "value": (2, "text"), "raw_value": (3, "bytes")},
    "HeaderMap": {"headers": (1, "HeaderValue*")},
    "HeaderValueOption": {"header": (1, "HeaderValue"), "append_action": (3, "number")},
    "HeaderMutation": {"set_headers": (1, "HeaderValueOption*"), "remove_headers": (2, "text*")},
    "Metadata": {"filter_metadata": (1, "Struct{}")},
    "HttpHeaders": {"headers": (1, "HeaderMap"), "end_of_stream": (3, "bool")},
    "HttpBody": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "HttpTrailers": {"trailers": (1, "HeaderMap")},
    "ProtocolConfiguration": {"request_body_mode": (1, "number"), "response_body_mode": (2, "number")},
    "ProcessingRequest": {
        "request_headers": (2, "HttpHeaders?"),
        "response_headers": (3, "HttpHeaders?"),
        "request_body": (4, "HttpBody?"),
        "response_body": (5, "HttpBody?"),
        "request_trailers": (6, "HttpTrailers?"),
        "response_trailers": (7, "HttpTrailers?"),
        "metadata_context": (8, "Metadata"),
        "attributes": (9, "Struct{}"),
        "observability_mode": (10, "bool"),
        "protocol_config": (11, "ProtocolConfiguration"),
    },
    "StreamedBodyResponse": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "BodyMutation": {
        "body": (1, "bytes?"),
        "clear_body": (2, "bool?"),
        "streamed_response": (3, "StreamedBodyResponse?"),
    },
    "CommonResponse": {"header_mutation": (2, "HeaderMutation"), "body_mutation": (3, "BodyMutation")},
    "HeadersResponse": {"response": (1, "CommonResponse")},
    "BodyResponse": {"response": (1, "CommonResponse")},
    "TrailersResponse": {"header_mutation": (1, "HeaderMutation")},
    "HttpStatus": {"code": (1, "number")},
    "ImmediateResponse": {
        "status": (1, "HttpStatus"),
        "headers": (2, "HeaderMutation"),
        "body": (3, "bytes"),
        "details": (5, "text"),
    },
    "ProcessingResponse": {
        "request_headers": (1, "HeadersResponse?"),
        "response_headers": (2, "HeadersResponse?"),
        "request_body": (3, "BodyResponse?"),
        "response_body": (4, "BodyResponse?"),
        "request_trailers": (5, "TrailersResponse?"),
        "response_trailers": (6, "TrailersResponse?"),
        "immediate_response": (7, "ImmediateResponse?"),
        "dynamic_metadata": (8, "Struct"),
    },
}
ADD: Final = 0
REPLACE: Final = 2
"""What becomes of a header field that is there (`append_action`)."""
STATUSES: Final = frozenset(
    (
        *(100, *range(200, 209), 226, *range(300, 306), 307, 308, *range(400, 418), *range(421, 425), 426, 428, 429),
        *(431, *range(500, 509), 510, 511),
    )
)
"""Those that an answer of ours may have: others are refused as no value of Envoy's enumeration."""


def _described(name: str, fields: Fields) -> DescriptorProto:
    message = DescriptorProto(name=name)
    if any(kind.endswith("?") for _, kind in fields.values()):
        message.oneof_decl.add(name="shown")
    for field, (number, kind) in fields.items():
        one = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        of_one = kind.rstrip("*?{}")
        if kind.endswith("?"):
            one.oneof_index = 0
        elif of_one != kind:
            one.label = FieldDescriptorProto.LABEL_REPEATED
        if kind.endswith("{}"):
            entry = f"{field.title().replace('_', '')}Entry"
            message.nested_type.append(_entry(entry, of_one))
            one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{name}.{entry}"
        else:
            _typed(one, of_one)
    return message


def _entry(name: str, kind: str) -> DescriptorProto:
    """One item of what is kept by text."""
    entry = DescriptorProto(name=name)
    entry.options.map_entry = True
    for number, (field, of_one) in enumerate((("key", "text"), ("value", kind)), 1):
        _typed(entry.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), of_one)
    return entry


def _typed(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_STRUCT}" if kind == "Struct" else f".{PACKAGE}.{kind}"


def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    structs = FileDescriptorProto.FromString(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(structs)
    messages = [_described(name, fields) for name, fields in MESSAGES.items()]
    file = FileDescriptorProto(name="prefixgate/extproc", package=PACKAGE, syntax="proto3", message_type=messages)
    file.dependency.append(structs.name)
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


_CLASSES: Final = _classes()
CommonResponse: Final = _CLASSES["CommonResponse"]
ProcessingRequest: Final = _CLASSES["ProcessingRequest"]
ProcessingResponse: Final = _CLASSES["ProcessingResponse"]
