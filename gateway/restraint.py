"""Endpoints that may be sent less than all that could go there: stalled, ejected, half open, open.

    first choice   those that are well, and as many requests at a time at one that is half open as probe it
    then           stalled, ejected, or half open on mere suspicion: the evidence may be wrong
    last resort    open, or half open with its probes under way, though polls are answered: an engine that is only
                   overloaded fails calls too, and its breaker must not make it unavailable where it is the only one,
                   or where all are

Each only where nobody stands before it; nobody is a last resort where another model is to answer then, or while it
is open for silence. Plain calls, no I/O; O(candidates) while there is such an endpoint, else O(1).
"""

from collections.abc import Mapping

from backends import BreakerState, EndpointState, Member
from gateway.scheduling import Candidate, Filtered
from gateway.types import Routed, Trouble


def thinned(
    restrained: Mapping[str, Member], able: list[Candidate], filtered: dict[str, Filtered], routed: Routed | None = None
) -> list[Candidate]:
    """The candidates without those that are to be spared; who is left out goes into `filtered`. `routed` tells whether
    another model answers where nobody can."""
    if not restrained:
        return able
    kept, spared, last = list[Candidate](), list[Candidate](), list[Candidate]()
    left_out = dict[str, Filtered]()
    for one in able:
        member = restrained.get(one.endpoint_id)
        why = None if member is None else _why(member)
        if member is None or why is None:
            kept.append(one)
            continue
        left_out[one.endpoint_id] = why
        if why in (Filtered.STALLED, Filtered.EJECTED) or _is_suspected(member):
            spared.append(one)
        elif member.is_last_resort:
            last.append(one)
    if not kept:
        kept = spared or ([] if _has_substitute(routed) else last)
        for one in kept:
            left_out.pop(one.endpoint_id, None)  # ranks of one endpoint are several candidates
    filtered.update(left_out)
    return kept


def _why(member: Member) -> Filtered | None:
    """Why an endpoint is to be spared; None where it need not be."""
    if member.breaker.state is BreakerState.OPEN:
        return Filtered.UNHEALTHY
    if not member.breaker.has_place:
        return Filtered.PROBING
    if EndpointState.STALLED in member.asides:
        return Filtered.STALLED
    return Filtered.EJECTED if EndpointState.EJECTED in member.asides else None


def _is_suspected(member: Member) -> bool:
    return member.breaker.state is BreakerState.HALF_OPEN and member.breaker.is_lenient


def _has_substitute(routed: Routed | None) -> bool:
    return routed is not None and Trouble.UNAVAILABLE in routed.falls_back_on
