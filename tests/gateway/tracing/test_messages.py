"""Our messages have the numbers and types of the official ones, and are read as them."""

from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from gateway.tracing import otlp_messages as otlp

MODULES: tuple[ModuleType, ...] = (
    metrics_service_pb2,
    trace_service_pb2,
    common_pb2,
    metrics_pb2,
    resource_pb2,
    trace_pb2,
)
WIRE = {FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32}
"""Types that look the same on the wire."""


def official(name: str) -> Any:
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


@pytest.mark.parametrize("name", otlp.MESSAGES)
def test_fields_have_the_numbers_and_types_of_the_protocol(name: str) -> None:
    theirs, ours = official(name).DESCRIPTOR.fields_by_name, otlp.CLASSES[name].DESCRIPTOR.fields
    for field in ours:
        one = theirs[field.name]
        assert (one.number, one.is_repeated, one.is_packed) == (field.number, field.is_repeated, field.is_packed)
        assert WIRE.get(one.type, one.type) == field.type


def test_enumerations_have_the_numbers_of_the_protocol() -> None:
    kinds = trace_pb2.Span.SpanKind
    assert (
        kinds.Value("SPAN_KIND_INTERNAL"),
        kinds.Value("SPAN_KIND_SERVER"),
        kinds.Value("SPAN_KIND_CLIENT"),
    ) == (otlp.SPAN_KIND_INTERNAL, otlp.SPAN_KIND_SERVER, otlp.SPAN_KIND_CLIENT)
    assert trace_pb2.Status.STATUS_CODE_ERROR == otlp.STATUS_CODE_ERROR
    assert metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE == otlp.CUMULATIVE


@pytest.mark.parametrize(
    ("field", "value"),
    [("bool_value", False), ("int_value", 0), ("int_value", -1), ("double_value", 0.0), ("string_value", "")],
)
def test_a_value_that_is_nothing_still_shows_its_kind(field: str, value: Any) -> None:
    read = common_pb2.AnyValue.FromString(otlp.AnyValue(**{field: value}).SerializeToString())
    assert (read.WhichOneof("value"), getattr(read, field)) == (field, value)
