"""The messages of OTLP that are sent and read here, as protobuf makes them of their numbers on the wire.

Their own package `opentelemetry-proto` would have them all; but others bring files of the same names and older content
(`xds-protos` does, which many bring that speak to Envoy), and which of the two lie there is chance. So the few that are
needed are written down here, under a name of our own. A test reads what is sent with the official ones.

Numbers and types are those of the protocol's .proto files, version 1. Enumerations are numbers here. Each field knows
whether it was set, as a value's kind must be seen where it is 0 or empty.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE: Final = "prefixgate.otlp"
_KINDS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "sfixed64": FieldDescriptorProto.TYPE_SFIXED64,
    "string": FieldDescriptorProto.TYPE_STRING,
}
Fields = Mapping[str, tuple[int, str]]
"""Numbers and types by name; a type with `*` comes any number of times."""
_MESSAGES: Final[Mapping[str, Fields]] = {
    "AnyValue": {
        "string_value": (1, "string"),
        "bool_value": (2, "bool"),
        "int_value": (3, "int64"),
        "double_value": (4, "double"),
    },
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "Resource": {"attributes": (1, "KeyValue*")},
    "InstrumentationScope": {"name": (1, "string")},
    "Status": {"code": (3, "int32")},
    "Span": {
        "trace_id": (1, "bytes"),
        "span_id": (2, "bytes"),
        "parent_span_id": (4, "bytes"),
        "name": (5, "string"),
        "kind": (6, "int32"),
        "start_time_unix_nano": (7, "fixed64"),
        "end_time_unix_nano": (8, "fixed64"),
        "attributes": (9, "KeyValue*"),
        "status": (15, "Status"),
        "flags": (16, "fixed32"),
    },
    "ScopeSpans": {"scope": (1, "InstrumentationScope"), "spans": (2, "Span*")},
    "ResourceSpans": {"resource": (1, "Resource"), "scope_spans": (2, "ScopeSpans*")},
    "ExportTraceServiceRequest": {"resource_spans": (1, "ResourceSpans*")},
    "ExportTracePartialSuccess": {"rejected_spans": (1, "int64")},
    "ExportTraceServiceResponse": {"partial_success": (1, "ExportTracePartialSuccess")},
    "NumberDataPoint": {
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "as_int": (6, "sfixed64"),
        "attributes": (7, "KeyValue*"),
    },
    "HistogramDataPoint": {
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "count": (4, "fixed64"),
        "sum": (5, "double"),
        "bucket_counts": (6, "fixed64*"),
        "explicit_bounds": (7, "double*"),
        "attributes": (9, "KeyValue*"),
    },
    "Sum": {
        "data_points": (1, "NumberDataPoint*"),
        "aggregation_temporality": (2, "int32"),
        "is_monotonic": (3, "bool"),
    },
    "Histogram": {"data_points": (1, "HistogramDataPoint*"), "aggregation_temporality": (2, "int32")},
    "Metric": {
        "name": (1, "string"),
        "description": (2, "string"),
        "unit": (3, "string"),
        "sum": (7, "Sum"),
        "histogram": (9, "Histogram"),
    },
    "ScopeMetrics": {"scope": (1, "InstrumentationScope"), "metrics": (2, "Metric*")},
    "ResourceMetrics": {"resource": (1, "Resource"), "scope_metrics": (2, "ScopeMetrics*")},
    "ExportMetricsServiceRequest": {"resource_metrics": (1, "ResourceMetrics*")},
}
SPAN_KIND_INTERNAL, SPAN_KIND_SERVER, SPAN_KIND_CLIENT = 1, 2, 3
STATUS_CODE_ERROR: Final = 2
CUMULATIVE: Final = 2


def _described(name: str, fields: Fields) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for field, (number, kind) in fields.items():
        one = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        of_one = kind.removesuffix("*")
        if of_one != kind:
            one.label = FieldDescriptorProto.LABEL_REPEATED
            one.options.packed = of_one in _KINDS
        if of_one in _KINDS:
            one.type = _KINDS[of_one]
        else:
            one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{of_one}"
    return message


def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    messages = [_described(name, fields) for name, fields in _MESSAGES.items()]
    pool.Add(FileDescriptorProto(name="prefixgate/otlp", package=_PACKAGE, syntax="proto2", message_type=messages))
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES: Final = _classes()
AnyValue: Final = _CLASSES["AnyValue"]
ExportMetricsServiceRequest: Final = _CLASSES["ExportMetricsServiceRequest"]
ExportTraceServiceRequest: Final = _CLASSES["ExportTraceServiceRequest"]
ExportTraceServiceResponse: Final = _CLASSES["ExportTraceServiceResponse"]
Histogram: Final = _CLASSES["Histogram"]
HistogramDataPoint: Final = _CLASSES["HistogramDataPoint"]
InstrumentationScope: Final = _CLASSES["InstrumentationScope"]
KeyValue: Final = _CLASSES["KeyValue"]
Metric: Final = _CLASSES["Metric"]
NumberDataPoint: Final = _CLASSES["NumberDataPoint"]
Resource: Final = _CLASSES["Resource"]
ResourceMetrics: Final = _CLASSES["ResourceMetrics"]
ResourceSpans: Final = _CLASSES["ResourceSpans"]
ScopeMetrics: Final = _CLASSES["ScopeMetrics"]
ScopeSpans: Final = _CLASSES["ScopeSpans"]
Span: Final = _CLASSES["Span"]
Status: Final = _CLASSES["Status"]
Sum: Final = _CLASSES["Sum"]
Message = Any
"""One of them: protobuf makes their classes, and nobody but this folder looks into one."""
