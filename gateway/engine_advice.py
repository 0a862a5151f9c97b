"""What the gateway could use of an engine and cannot, as far as it can be told, and what would turn it on. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends import EndpointFacts, EndpointSnapshot, Feature, Standing
from gateway.config import Config

WITHOUT: Final[Mapping[Feature, str]] = {
    Feature.CACHED_TOKENS: "cached tokens are unknown, and billed at the full price",
    Feature.METRICS: "its load and the size of its cache are unknown, and a restart that is quick stays unseen",
    Feature.KV_EVENTS: "what its cache holds is inferred from its answers",
    Feature.PREFIX_CACHING: "nothing is reused, wherever a request goes",
    Feature.PRIORITY: "classes of requests order the gateway's queue, not the engine's own",
    Feature.LORA: "it serves no adapters",
}
_MATTERS_WHEN_OFF: Final = (Feature.METRICS, Feature.PREFIX_CACHING)


@dataclass(frozen=True, slots=True)
class FeatureFinding:
    """A feature that is not known to be on: how it stands, the engine's `flag` for it, and what is lost without."""

    feature: str
    standing: str
    flag: str
    without: str


def feature_findings(endpoint: EndpointSnapshot, config: Config) -> tuple[FeatureFinding, ...]:
    """Every feature of an endpoint that is not on for sure, empty where it was never reached.

    The flag is empty where there is none, or nothing helps. Events are left out where the configuration has settled the
    matter: it says where they are, or that they are not wanted.
    """
    settled = any(
        backend.kv_events.url is not None or backend.kv_events.mode != "auto"
        for backend in config.backends
        if backend.name == endpoint.id
    )
    features = {} if endpoint.facts is None else endpoint.facts.features
    return tuple(
        FeatureFinding(feature.value, fact.standing.value, fact.flag, WITHOUT[feature])
        for feature, fact in features.items()
        if fact.standing is not Standing.ON and not (settled and feature is Feature.KV_EVENTS)
    )


def advice(endpoint: EndpointSnapshot, config: Config) -> list[str]:
    """What would help an endpoint that was reached once, the most important first."""
    facts = endpoint.facts
    assert facts is not None
    found = [] if endpoint.healthy else [endpoint.unhealthy_reason or "down"]
    if facts.reports_cached_tokens is not True and facts.cached_tokens_flag:
        found.append(f"start it with {facts.cached_tokens_flag}, if it is not: cached tokens are unknown without")
    if facts.reports_cached_tokens is False and not facts.cached_tokens_flag:
        found.append("this engine never says what was cached: it is billed at the full price")
    found.extend(_turned_off(facts))
    if (flag := _priority_flag(endpoint, config)) is not None:
        found.append(f"pass_priority is set: {flag}")
    if unnamed := _unnamed_adapters(facts, config):
        found.append(f"no request can ask for its adapters {', '.join(unnamed)}: name them in adapters.known")
    if any(one.scale for one in facts.adapters or ()):
        found.append("it applies adapters to every prompt: start it with --lora-init-without-apply")
    if config.isolation == "salt" and not facts.supports_cache_salt:
        found.append("it has no cache salt: it cannot serve more than one share group, unless isolation is none")
    if facts.capacity_tokens is None and config.index.capacity_blocks is None:
        found.append("its capacity is unknown: set index.capacity_blocks")
    if not facts.has_tokenize and not {model.id for model in facts.models} <= set(config.models):
        found.append("it tells no token ids of chats: set models.<name>.tokenizer")
    return found


def _turned_off(facts: EndpointFacts) -> list[str]:
    facts_of = ((feature, facts.features.get(feature)) for feature in _MATTERS_WHEN_OFF)
    return [
        f"{feature.value}: off, turned on by {fact.flag}" if fact.flag else f"{feature.value}: off"
        for feature, fact in facts_of
        if fact is not None and fact.standing is Standing.OFF
    ]


def _unnamed_adapters(facts: EndpointFacts, config: Config) -> list[str]:
    """Adapters by number that it was started with, and for which the configuration has no name."""
    served = {model.id for model in facts.models}
    named = {one.number for one in config.adapters.known if one.model in served}
    return [f"{one.number} ({one.file})" for one in facts.adapters or () if one.number not in named]


def _priority_flag(endpoint: EndpointSnapshot, config: Config) -> str | None:
    """What an engine that is told of priorities may lack; None where it is not told, or is known to heed them."""
    told = any(backend.pass_priority for backend in config.backends if backend.name == endpoint.id)
    fact = None if endpoint.facts is None else endpoint.facts.features.get(Feature.PRIORITY)
    if not told or fact is None or fact.standing is Standing.ON:
        return None
    if fact.standing is Standing.NEVER:
        return "this engine knows no priorities"
    return f"{fact.flag} must be set at the engine ({fact.standing.value})"
