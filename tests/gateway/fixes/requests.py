"""Requests as the edge reads them, for tests of what is decided about them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gateway.edge.reading import Arrival, read_request
from gateway.types import InferenceRequest, KeyId, Labels, RequestId, Route, Tenant, TenantId

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def arrival(tenant: str = "acme", route: Route = Route.CHAT, number: int = 1) -> Arrival:
    whose = Tenant(TenantId(tenant), KeyId("key"), tenant, "")
    return Arrival(RequestId(f"r{number}"), whose, route, route.value, (), 0.0, NOON)


def request_of(
    body: dict[str, Any], tenant: str = "acme", route: Route = Route.CHAT, *, number: int = 1, job: str | None = None
) -> InferenceRequest:
    found = read_request(arrival(tenant, route, number), json.dumps(body).encode())
    return replace(found, labels=Labels(job_id=job))
