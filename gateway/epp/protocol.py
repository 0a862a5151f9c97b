"""Envoy's messages of ext-proc, as far as they are read and written here: see `gateway/message_classes.py`.

Numbers and types are those of `envoy/service/ext_proc/v3/external_processor.proto` and what it imports. A test holds
them against the official ones (`xds-protos`), and `make epp-test` against a real Envoy.
"""

from collections.abc import Mapping
from typing import Final

from gateway.message_classes import Fields, message_classes

PACKAGE: Final = "prefixgate.extproc"
MESSAGES: Final[Mapping[str, Fields]] = {
    "HeaderValue": {"key": (1, "string"), "value": (2, "string"), "raw_value": (3, "bytes")},
    "HeaderMap": {"headers": (1, "HeaderValue*")},
    "HeaderValueOption": {"header": (1, "HeaderValue"), "append_action": (3, "int32")},
    "HeaderMutation": {"set_headers": (1, "HeaderValueOption*"), "remove_headers": (2, "string*")},
    "Metadata": {"filter_metadata": (1, "Struct{}")},
    "HttpHeaders": {"headers": (1, "HeaderMap"), "end_of_stream": (3, "bool")},
    "HttpBody": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "HttpTrailers": {"trailers": (1, "HeaderMap")},
    "ProtocolConfiguration": {"request_body_mode": (1, "int32"), "response_body_mode": (2, "int32")},
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
    "HttpStatus": {"code": (1, "int32")},
    "ImmediateResponse": {
        "status": (1, "HttpStatus"),
        "headers": (2, "HeaderMutation"),
        "body": (3, "bytes"),
        "details": (5, "string"),
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

CLASSES: Final = message_classes(PACKAGE, MESSAGES, "proto3")
"""By name."""
CommonResponse: Final = CLASSES["CommonResponse"]
ProcessingRequest: Final = CLASSES["ProcessingRequest"]
ProcessingResponse: Final = CLASSES["ProcessingResponse"]
