"""What of the roles of endpoints leads nowhere, going by what their engines say now. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from backends import EndpointFacts, EndpointSnapshot
from backends.disaggregated import Role, handover_of


def unpaired(endpoints: Sequence[EndpointSnapshot], roles: Mapping[str, Role]) -> list[str]:
    """In words, for `prefixgate check`: endpoints that compute prompts or answer for others, and have no counterpart.

    `roles` by endpoint, `BOTH` where it is not in there. Who has not said what it is is left out. O(endpoints²).
    """
    known: dict[str, EndpointFacts] = {one.id: one.facts for one in endpoints if one.facts is not None}
    return [f"role: {said}" for id, facts in known.items() for said in _of(id, facts, known, roles)]


def _of(
    endpoint_id: str, facts: EndpointFacts, known: Mapping[str, EndpointFacts], roles: Mapping[str, Role]
) -> Iterator[str]:
    role = roles.get(endpoint_id, Role.BOTH)
    if role is Role.BOTH:
        return
    way, engine = handover_of(facts.engine), f"{facts.engine} {facts.version or ''}".rstrip()
    if way is None:
        able = "only vLLM, SGLang, TensorRT-LLM and the reference engine do"
        yield f"{endpoint_id} is {role}, and {facts.engine} hands nothing over: {able}"
        return
    wanted = Role.DECODE if role is Role.PREFILL else Role.PREFILL
    others = [other for id, other in known.items() if roles.get(id, Role.BOTH) is wanted]
    if any(_fit(facts, other) for other in others):
        return
    if role is Role.PREFILL:
        yield f"{endpoint_id} gets no requests: no decode endpoint of {engine} serves a model of it"
    else:
        then = "it computes all prompts itself" if way.decodes_alone else "it gets no requests"
        yield f"{endpoint_id} has no prefill endpoint of {engine} with a model of its own: {then}"


def _fit(one: EndpointFacts, other: EndpointFacts) -> bool:
    """Caches of two builds do not fit each other."""
    models = {model.id for model in one.models}
    return (one.engine, one.version) == (other.engine, other.version) and any(
        model.id in models for model in other.models
    )
