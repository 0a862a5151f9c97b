"""A dialect: what differs between model servers, as data and pure functions.

    /v1/models, /metrics ──which──> Dialect ──facts──> EndpointFacts
                                            ──load───> LoadSample

A dialect does no I/O. Metric names are tuples of alternatives, newest first: the first one present on a page counts,
so one dialect reads every version of its engine. What a page does not say stays None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backends.types import EventSourceFacts, Metering

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"
EMBEDDINGS: Final = "/v1/embeddings"

NEWER_ROUTES: Final = (RESPONSES, MESSAGES, COUNT_TOKENS, EMBEDDINGS)
"""What depends on an engine's version, its flags and its model, so that it must be asked."""

Series = tuple[Mapping[str, str], float]
"""Labels and value of one line of a metrics page."""

Samples = Mapping[str, Sequence[Series]]
"""The series of a metrics page by metric name, only the names asked for; what is not finite is left out."""

Info = Mapping[str, object]
"""The JSON object of the engine's own information page; empty where there is none."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Which metrics carry the load; each field lists alternatives, best first. `also` is read by `shape` alone.

    `started` are gauges that hold the Unix time at which the engine's process, or its counters, came to be.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_use: tuple[str, ...] = ()
    prefix_hits: tuple[str, ...] = ()
    prefix_queries: tuple[str, ...] = ()
    started: tuple[str, ...] = ("process_start_time_seconds",)
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Size of an endpoint's KV cache: tokens a block, and capacity in tokens over all ranks; None is unknown.

    `slots`: how many sequences it holds, where it is made of those and not of blocks.
    """

    block_size: int | None = None
    capacity_tokens: int | None = None
    slots: int | None = None


def no_shape(samples: Samples, info: Info) -> CacheShape:
    """For engines that say nothing of their cache."""
    return CacheShape()


def no_event_sources(page: object, info: Info, host: str) -> tuple[EventSourceFacts, ...]:
    """For engines that publish no events of their cache, or do not say where."""
    return ()


def as_they_are(samples: Samples) -> Samples:
    """For engines whose series need no preparation."""
    return samples


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine speaks.

    `owned_by` are its signatures in `/v1/models`, `metric_prefix` the one on its metrics page. `health_paths` and
    `info_paths` are tried in order, skipping those the version does not know (404); no health path means that
    `/v1/models` stands for health. `prepare` folds an engine's series into comparable ones before they are summed.
    `reports_cached_tokens` and `cached_tokens_flag` as in `EndpointFacts`. `has_tokenize`: `POST /tokenize` takes a
    chat or a text in vLLM's form and answers `{"tokens": [...]}`; what other engines have at that path does not count.

    `supports_cache_salt`: chat completions and completions heed `cache_salt`; `salted_everywhere_since` is the first
    version known to heed it on every route it speaks, None where none is. A version that is not told counts as old.

    `event_sources` reads where events of the cache come from, given the page at `event_sources_path` (None where there
    is none), the information page, and the host of the endpoint's URL.

    `routes` are the inference paths that every version has, `uncertain_routes` those to be asked. `open_paths` are
    further paths a tenant may reach, `"METHOD /path"` to who pays: paths that only read are free, and metered are those
    that run the model on a JSON body and say in `usage` what it took. Nothing that touches adapters, caches, slots,
    profiles, sleep, weights or settings, and no body in which a salt or a scheduler's field could hide deeper down.
    """

    name: str
    owned_by: frozenset[str] = frozenset()
    metric_prefix: str | None = None
    metrics: MetricNames = MetricNames()
    metrics_path: str = "/metrics"
    health_paths: tuple[str, ...] = ()
    info_paths: tuple[str, ...] = ()
    prepare: Callable[[Samples], Samples] = as_they_are
    shape: Callable[[Samples, Info], CacheShape] = no_shape
    reports_cached_tokens: bool | None = None
    cached_tokens_flag: str | None = None
    cached_tokens_info_key: str | None = None
    max_model_len_info_key: tuple[str, ...] = ()
    supports_cache_salt: bool = False
    salted_everywhere_since: tuple[int, ...] | None = None
    has_tokenize: bool = False
    event_sources_path: str | None = None
    event_sources: Callable[[object, Info, str], tuple[EventSourceFacts, ...]] = no_event_sources
    routes: frozenset[str] = frozenset({CHAT, COMPLETIONS})
    uncertain_routes: tuple[str, ...] = NEWER_ROUTES
    open_paths: Mapping[str, Metering] = field(default_factory=dict, hash=False)
