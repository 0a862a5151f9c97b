"""EndpointSlices as the API server writes them (discovery.k8s.io/v1), and what they say of endpoints. Pure.

    ready          serving          terminating      the endpoint is
    true, absent   any              not true         ready
    false          any              not true         held: it is loading, or unwell
    any            true, as ready   true             held: it ends, and still serves
    any            false            true             gone

Traps: an address may be in two slices for a while, when Kubernetes moves it; then the one that says more for it counts.
A pod of two address families is in two slices under one name; it is one endpoint, by IPv4 where it has that. Of an
endpoint's addresses only the first is used, since all of them are said to be the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.disaggregated import Role
from backends.discovery.names import name_of
from backends.discovery.types import Found, Traits

ANNOTATION: Final = "prefixgate.io/"
"""Of a slice's annotations and labels those that begin so: `role`, `model`, `gpu-cost-per-hour`."""
_ROLE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ROLES: Final = frozenset(role.value for role in Role)
"""Those that count; others are shown."""
_COST: Final = re.compile(r"\d{1,9}(\.\d{1,9})?")
_MOST_MODEL_CHARS: Final = 256
_USUAL_PORT: Final = "http"


class Conditions(msgspec.Struct, frozen=True):
    """None is not said."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(msgspec.Struct, frozen=True):
    """What stands behind an address."""

    kind: str = ""
    name: str = ""


class SliceEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint of a slice."""

    addresses: list[str]
    conditions: Conditions | None = None
    target_ref: TargetRef | None = None


class SlicePort(msgspec.Struct, frozen=True):
    """One port of a slice; None stands for any port."""

    name: str | None = None
    port: int | None = None


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """Of an object or a list."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    continue_: str = msgspec.field(default="", name="continue")


class Slice(msgspec.Struct, frozen=True, rename="camel"):
    """An EndpointSlice."""

    metadata: Meta
    address_type: str = "IPv4"
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


class SliceList(msgspec.Struct, frozen=True):
    """A page of them."""

    metadata: Meta
    items: list[Slice] | None = None


@dataclass(frozen=True, slots=True)
class Reaching:
    """How endpoints of slices are reached: `port` is a port's name or number; None: the one called `http`, else the
    first."""

    scheme: str = "http"
    path: str = ""
    port: str | int | None = None


def listing_of(slices: Iterable[Slice], reaching: Reaching) -> list[Found]:
    """All endpoints of some slices, each once. O(endpoints)."""
    found: dict[str, Found] = {}
    ordered = sorted(slices, key=lambda one: (one.address_type != "IPv4", one.metadata.name))
    pods: dict[str, str] = {}
    for one in ordered:
        port = _port_of(one.ports, reaching.port)
        if port is None:
            continue
        traits = _traits_of(one.metadata)
        for endpoint in one.endpoints or ():
            held = _held(endpoint.conditions or Conditions())
            if held is None or not endpoint.addresses:
                continue
            host = endpoint.addresses[0]
            url = f"{reaching.scheme}://{f'[{host}]' if ':' in host else host}:{port}{reaching.path}"
            pod = _pod_of(endpoint)
            if pod is not None and pods.setdefault(pod, one.address_type) != one.address_type:
                continue  # its other address family
            if url not in found or (found[url].draining and not held):
                settings = {"role": traits.role} if traits.role in _ROLES else {}
                found[url] = Found(url, None if pod is None else name_of(pod), held, traits, settings)
    return sorted(found.values(), key=lambda one: one.url)


def _held(said: Conditions) -> bool | None:
    """Whether it is to get no new requests; None where it is gone."""
    ready = said.ready is not False
    if not said.terminating:
        return not ready
    return True if (ready if said.serving is None else said.serving) else None


def _pod_of(endpoint: SliceEndpoint) -> str | None:
    target = endpoint.target_ref
    return target.name if target is not None and target.kind == "Pod" and target.name else None


def _port_of(ports: Sequence[SlicePort] | None, wanted: str | int | None) -> int | None:
    if isinstance(wanted, int):
        # A slice without ports stands for every port.
        return wanted if not ports or any(one.port in (wanted, None) for one in ports) else None
    if wanted is not None:
        return next((one.port for one in ports or () if one.name == wanted), None)
    named = next((one.port for one in ports or () if one.name == _USUAL_PORT), None)
    return named or next((one.port for one in ports or ()), None)


def _traits_of(meta: Meta) -> Traits:
    """What is said of all endpoints of a slice; an annotation goes before a label. What is no value is left out."""
    said: Mapping[str, str] = {**(meta.labels or {}), **(meta.annotations or {})}
    role, model, cost = (said.get(f"{ANNOTATION}{name}") for name in ("role", "model", "gpu-cost-per-hour"))
    return Traits(
        role if role is not None and _ROLE.fullmatch(role) else None,
        model if model is not None and 0 < len(model) <= _MOST_MODEL_CHARS else None,
        cost if cost is not None and _COST.fullmatch(cost) else None,
    )
