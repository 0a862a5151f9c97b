"""Which features an endpoint has turned on, from all that it said. Pure; what no page says cannot be told."""

from collections.abc import Mapping
from dataclasses import dataclass

from backends.dialects.types import Dialect, Info, Samples, no_event_sources
from backends.features import Feature, FeatureFact, Features, Standing
from backends.types import EventSourceFacts, ServedModel, StartedAdapter


@dataclass(frozen=True, slots=True)
class Asked:
    """What an endpoint answered beside its pages of models, load and information.

    `spoken` are the uncertain routes it answered on. `has_metrics`: whether there is a metrics page, None where nobody
    looked; likewise `has_event_page`, of a dialect that has one. `adapters` as in `EndpointFacts`.
    """

    spoken: tuple[str, ...] = ()
    event_sources: tuple[EventSourceFacts, ...] = ()
    has_metrics: bool | None = None
    has_event_page: bool | None = None
    adapters: tuple[StartedAdapter, ...] | None = None


NOTHING_ASKED = Asked()


def features_of(
    dialect: Dialect, samples: Samples, info: Info, asked: Asked, models: tuple[ServedModel, ...]
) -> Features:
    """Every feature, how it stands, and the flag that turns it on."""
    told = _inferred(dialect, asked, models)
    told |= {feature: said for feature, said in dialect.told(samples, info).items() if said is not Standing.UNKNOWN}
    return {feature: _fact(dialect, feature, told) for feature in Feature}


def _fact(dialect: Dialect, feature: Feature, told: Mapping[Feature, Standing]) -> FeatureFact:
    flag = dialect.flags.get(feature)
    standing = told.get(feature)
    if standing is None:
        standing = Standing.NEVER if flag is None else Standing.UNKNOWN
    return FeatureFact(standing, flag or "")


def _inferred(dialect: Dialect, asked: Asked, models: tuple[ServedModel, ...]) -> dict[Feature, Standing]:
    """What follows from what an endpoint answers at all."""
    found: dict[Feature, Standing] = {}
    if asked.has_metrics is not None and Feature.METRICS in dialect.flags:
        found[Feature.METRICS] = Standing.ON if asked.has_metrics else Standing.OFF
    if asked.event_sources:
        found[Feature.KV_EVENTS] = Standing.ON
    elif asked.has_event_page and dialect.event_sources is not no_event_sources:
        found[Feature.KV_EVENTS] = Standing.OFF
    if any(model.parent is not None for model in models) or asked.adapters:
        found[Feature.LORA] = Standing.ON
    elif asked.adapters is not None:
        found[Feature.LORA] = Standing.OFF
    if dialect.reports_cached_tokens is not None:
        always = dialect.reports_cached_tokens
        found[Feature.CACHED_TOKENS] = Standing.ON if always else Standing.NEVER
    return found
