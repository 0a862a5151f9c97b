"""Endpoints that are up, but may be sent less than all that could go there: half open, stalled, ejected.

    stalled, ejected   nothing, unless nobody else could take a request
    half open          as many requests at a time as probe it; on mere suspicion more, where nobody else could

Plain calls, no I/O; O(candidates) while there is such an endpoint, else O(1).
"""

from collections.abc import Mapping

from backends import EndpointState, Member
from gateway.scheduling import Candidate, Filtered


def thinned(restrained: Mapping[str, Member], able: list[Candidate], filtered: dict[str, Filtered]) -> list[Candidate]:
    """The candidates without those that are to be spared; who is left out goes into `filtered`."""
    if not restrained:
        return able
    kept, spared, left_out = list[Candidate](), list[Candidate](), dict[str, Filtered]()
    for one in able:
        why, is_strict = _why(restrained.get(one.endpoint_id))
        if why is None:
            kept.append(one)
            continue
        left_out[one.endpoint_id] = why
        if not is_strict:
            spared.append(one)
    if not kept and spared:
        for one in spared:
            left_out.pop(one.endpoint_id, None)  # ranks of one endpoint are several candidates
        kept = spared
    filtered.update(left_out)
    return kept


def _why(member: Member | None) -> tuple[Filtered | None, bool]:
    """Why an endpoint is to be spared, and whether so even where nobody else could take a request."""
    if member is None:
        return None, False
    if not member.breaker.has_place:
        return Filtered.PROBING, not member.breaker.is_lenient
    if EndpointState.STALLED in member.asides:
        return Filtered.STALLED, False
    if EndpointState.EJECTED in member.asides:
        return Filtered.EJECTED, False
    return None, False
