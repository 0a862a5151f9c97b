"""Traces of requests and metrics of calls of engines for an OpenTelemetry collector: off by default."""

from gateway.tracing.context import Trace
from gateway.tracing.inferences import Inference
from gateway.tracing.setup import running_tracer, tracer_of
from gateway.tracing.spans import TracedRequest
from gateway.tracing.tracer import Tracer

__all__ = ["Inference", "Trace", "TracedRequest", "Tracer", "running_tracer", "tracer_of"]
