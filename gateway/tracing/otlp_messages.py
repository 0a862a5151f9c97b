"""The messages of OTLP that are sent and read here, version 1 of the protocol: see `gateway/message_classes.py`.

Each field knows whether it was set, as a value's kind must be seen where it is 0 or empty. A test reads what is sent
with the official messages (`opentelemetry-proto`).
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.message_classes import Fields, message_classes

_PACKAGE: Final = "prefixgate.otlp"
MESSAGES: Final[Mapping[str, Fields]] = {
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

CLASSES: Final = message_classes(_PACKAGE, MESSAGES, "proto2")
"""By name."""
AnyValue: Final = CLASSES["AnyValue"]
ExportMetricsServiceRequest: Final = CLASSES["ExportMetricsServiceRequest"]
ExportTraceServiceRequest: Final = CLASSES["ExportTraceServiceRequest"]
ExportTraceServiceResponse: Final = CLASSES["ExportTraceServiceResponse"]
Histogram: Final = CLASSES["Histogram"]
HistogramDataPoint: Final = CLASSES["HistogramDataPoint"]
InstrumentationScope: Final = CLASSES["InstrumentationScope"]
KeyValue: Final = CLASSES["KeyValue"]
Metric: Final = CLASSES["Metric"]
NumberDataPoint: Final = CLASSES["NumberDataPoint"]
Resource: Final = CLASSES["Resource"]
ResourceMetrics: Final = CLASSES["ResourceMetrics"]
ResourceSpans: Final = CLASSES["ResourceSpans"]
ScopeMetrics: Final = CLASSES["ScopeMetrics"]
ScopeSpans: Final = CLASSES["ScopeSpans"]
Span: Final = CLASSES["Span"]
Status: Final = CLASSES["Status"]
Sum: Final = CLASSES["Sum"]
Message = Any
"""One of them: protobuf makes their classes, and nobody but this folder looks into one."""
