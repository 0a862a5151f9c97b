"""Traces of requests for an OpenTelemetry collector: made when a request is over, off by default."""

from gateway.tracing.context import Trace
from gateway.tracing.setup import running_tracer, tracer_of
from gateway.tracing.spans import TracedRequest
from gateway.tracing.tracer import Tracer

__all__ = ["Trace", "TracedRequest", "Tracer", "running_tracer", "tracer_of"]
