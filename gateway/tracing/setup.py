"""The tracer as the configuration has it; what it needs is imported only where it is configured."""

import asyncio
import os
import random
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from gateway.config import Config, ConfigInvalid, tracing_headers
from gateway.product_version import product_version
from gateway.telemetry import Telemetry
from gateway.tracing.context import Sampler
from gateway.tracing.inferences import Inferences
from gateway.tracing.tracer import Tracer

_TRACES, _METRICS = "/v1/traces", "/v1/metrics"


def tracer_of(config: Config, environment: Mapping[str, str], telemetry: Telemetry) -> Tracer | None:
    """Traces requests as configured; None where that is off. Raises `ConfigInvalid`, as where the extra is missing."""
    tracing = config.tracing
    if tracing.otlp_endpoint is None:
        return None
    try:
        from gateway.tracing.otlp import Collector, CollectorClient  # noqa: PLC0415 - the extra `otel` brings what it needs
    except ImportError:
        raise ConfigInvalid(
            "tracing.otlp_endpoint: spans need the extra `otel`: pip install '.[otel]' in a checkout"
        ) from None
    collector = Collector(
        url=_url_of(tracing.otlp_endpoint, _TRACES),
        resource={
            "service.name": tracing.service_name,
            "service.version": product_version(),
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        },
        headers=dict(_headers_of(tracing_headers(tracing, environment))),
        tls=_tls_of(config),
    )
    dice = random.Random()  # noqa: S311 - ids and chance, no secret
    tracer = Tracer(
        Sampler(tracing.sample_ratio, dice),
        lambda pause: CollectorClient(collector, pause),
        telemetry.trace_spans,
        dice,
    )
    if tracing.metrics_interval_s is not None:
        from gateway.tracing.otlp_metrics import MetricExporter  # noqa: PLC0415 - the same extra

        calls = tracer.inferences = Inferences()
        metrics_at = replace(collector, url=_url_of(tracing.otlp_endpoint, _METRICS))
        exporter = MetricExporter(calls.registry, metrics_at, tracing.metrics_interval_s, telemetry.metric_exports)
        tracer.on_close(exporter.close)
    return tracer


@asynccontextmanager
async def running_tracer(
    config: Config, environment: Mapping[str, str], telemetry: Telemetry
) -> AsyncIterator[Tracer | None]:
    """The same; what waits at the end is sent, for a while."""
    tracer = tracer_of(config, environment, telemetry)
    try:
        yield tracer
    finally:
        if tracer is not None:
            await asyncio.to_thread(tracer.close)


def _url_of(endpoint: str, path: str) -> str:
    """The address for this at a collector, of which the base may be given, or the address for spans."""
    parts = urlsplit(endpoint)
    base = parts.path.rstrip("/").removesuffix(_TRACES)
    return parts._replace(path=base + path).geturl()


def _headers_of(text: str | None) -> Iterator[tuple[str, str]]:
    """`name=value`, with commas or ends of lines between them, values percent-encoded: as OpenTelemetry writes them."""
    for entry in re.split(r"[,\n]", text or ""):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not name and not equals:
            continue
        if (
            not equals
            or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
            or not (value.isascii() and value.isprintable())
        ):
            raise ConfigInvalid("tracing.headers: written name=value, with commas or ends of lines between them")
        yield name, unquote(value)


def _tls_of(config: Config) -> ssl.SSLContext | None:
    file = config.tracing.ca_file
    if file is None:
        return None
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise ConfigInvalid(f"tracing.ca_file: cannot use {file}: {error.strerror or error}") from None
