"""Captured bodies as prompts, whatever dialect they are in."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.edge.reading import Arrival, read_request
from gateway.errors import GatewayError
from gateway.types import KeyId, RequestId, Route, Tenant, TenantId
from prefix_index.prompt import PromptView

_NOBODY: Final = Tenant(TenantId("-"), KeyId("-"), "-", "")


def view_of(raw: bytes, body: Mapping[str, object]) -> PromptView | None:
    """What of a body decides its tokens; None where it cannot be read as a request."""
    route = route_of(body)
    arrival = Arrival(RequestId("-"), _NOBODY, route, route.value, (), 0.0, datetime(2026, 1, 1, tzinfo=UTC))
    try:
        return read_request(arrival, raw).prompt
    except GatewayError:
        return None


def route_of(body: Mapping[str, object]) -> Route:
    """The path that a body was most likely sent to."""
    if "messages" in body:
        is_foreign = "system" in body or any("input_schema" in tool for tool in _tools(body))
        return Route.MESSAGES if is_foreign else Route.CHAT
    return Route.RESPONSES if "input" in body else Route.COMPLETIONS


def _tools(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    tools = body.get("tools")
    return [one for one in tools if isinstance(one, dict)] if isinstance(tools, list) else []
