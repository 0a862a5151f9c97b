"""The roots of chains: what keeps apart prompts that never share a cache. One formula for both who need it.

    a request   model, adapter, tenant's salt --+
                                                +--> prompt_root --> chain       (equal roots: they may match)
    a KV event  engine, adapter, salt ----------+

Of token ids that are the engine's own it does not matter which tokenizer or template made them: equal ids are equal
cache blocks, and only so can a chain be derived from what an engine says it has stored. Bytes that stand in for tokens
are another kind of ids, and share no chain with them.
"""

from collections.abc import Sequence
from typing import Final

from backends import EndpointFacts, EndpointSnapshot
from gateway.types import InferenceRequest, TokenSource
from prefix_index import prompt_root

_TOKEN_KINDS: Final = {
    TokenSource.LOCAL: b"tokens",
    TokenSource.ENGINE: b"tokens",
    TokenSource.BYTES: b"bytes",
}
_ONE_MODEL: Final = frozenset({"vllm", "reference", "sglang", "trtllm", "tgi"})
"""Engines that serve one model at an address: there, every name without a parent is an alias of it."""


def root_of_request(
    request: InferenceRequest, endpoints: Sequence[EndpointSnapshot], source: TokenSource, block_size: int, salt: str
) -> bytes:
    """The root of a prompt's chain. `endpoints` are those that serve its model; `salt` is empty where none is given."""
    base = base_of(request.model, endpoints)
    adapters = [*([] if base is None else [request.model]), *([] if request.adapter is None else [request.adapter])]
    return prompt_root(
        model=_first_name(base or request.model, endpoints),
        adapter="\n".join(adapters) if adapters else None,
        kind=_TOKEN_KINDS[source],
        block_size=block_size,
        salt=salt.encode(),
    )


def root_of_event(facts: EndpointFacts, adapter: str | None, salt: str | None, block_size: int) -> bytes | None:
    """The root of what an engine has stored under an adapter and a salt; None where its model is not known."""
    names = _names(facts)
    if not names or facts.engine not in _ONE_MODEL:
        return None
    return prompt_root(
        model=names[0],
        adapter=adapter,
        kind=_TOKEN_KINDS[TokenSource.ENGINE],
        block_size=block_size,
        salt=(salt or "").encode(),
    )


def base_of(model: str, endpoints: Sequence[EndpointSnapshot]) -> str | None:
    """The model that an adapter of this name belongs to; None for what is no adapter."""
    served = (one for endpoint in endpoints if endpoint.facts is not None for one in endpoint.facts.models)
    return next((one.parent for one in served if one.id == model and one.parent is not None), None)


def _first_name(model: str, endpoints: Sequence[EndpointSnapshot]) -> str:
    """The first of a model's aliases, where all its endpoints agree on it: they are one cache under several names."""
    firsts = set()
    for endpoint in endpoints:
        facts = endpoint.facts
        names = _names(facts) if facts is not None and facts.engine in _ONE_MODEL else []
        firsts.add(names[0] if model in names else _full_name(model, facts))
    return firsts.pop() if len(firsts) == 1 else model


def _full_name(model: str, facts: EndpointFacts | None) -> str:
    """The name that a short one stands for, where its engine has such."""
    served = () if facts is None else facts.models
    return next((one.alias_of for one in served if one.id == model and one.alias_of is not None), model)


def _names(facts: EndpointFacts) -> list[str]:
    return [model.id for model in facts.models if model.parent is None]
