"""How an endpoint stands, for people and programs that read `/health` and `/admin/endpoints`."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from backends import EndpointSnapshot, EndpointState


def standing_of(endpoint: EndpointSnapshot) -> dict[str, object]:
    """Its state, why where not well, since when (UTC), and how often its breaker has opened."""
    condition = endpoint.condition
    since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - condition.since_s)
    return {
        "state": condition.state.value,
        "why": condition.why,
        "since": since.isoformat(timespec="seconds"),
        "breaker_opened": condition.opened,
    }


def troubles_of(endpoints: Iterable[EndpointSnapshot]) -> str | None:
    """Endpoints that do not get all that could go there, by their states; None where all are well."""
    found: dict[str, list[str]] = {}
    for endpoint in endpoints:
        if not endpoint.leaving and endpoint.condition.state is not EndpointState.UP:
            found.setdefault(endpoint.condition.state.value.replace("_", " "), []).append(endpoint.id)
    return "; ".join(f"{state}: {', '.join(sorted(names))}" for state, names in sorted(found.items())) or None
