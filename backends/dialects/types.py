"""A dialect: what differs between model servers, as data and pure functions.

    /v1/models, /metrics ──which──> Dialect ──facts──> EndpointFacts
                                            ──load───> LoadSample

A dialect does no I/O. Metric names are tuples of alternatives, newest first: the first one present on a page counts,
so one dialect reads every version of its engine. What a page does not say stays None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backends.features import Feature, Standing
from backends.types import AdapterSample, EventSourceFacts, Metering, PriorityForm, StartedAdapter, TokenizeForm

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"
EMBEDDINGS: Final = "/v1/embeddings"

NEWER_ROUTES: Final = (RESPONSES, MESSAGES, COUNT_TOKENS, EMBEDDINGS)
"""What depends on an engine's version, its flags and its model, so that it must be asked."""

RANKED_ROUTES: Final = frozenset({CHAT, COMPLETIONS})
"""Where engines that let a header choose a rank heed it; on other routes they choose themselves, in some versions."""

OPENAI_HINTS: Final = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
    }
)
"""Fields of OpenAI's API that change nothing in what is computed, which a strict engine refuses for being unknown."""

Series = tuple[Mapping[str, str], float]
"""Labels and value of one line of a metrics page."""

Samples = Mapping[str, Sequence[Series]]
"""The series of a metrics page by metric name, only the names asked for; what is not finite is left out."""

Info = Mapping[str, object]
"""The JSON object of the engine's own information page; empty where there is none."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Which metrics carry the load; each field lists alternatives, best first. `also` is read by `shape` and the like.

    `steps` are counters that move with every step of the engine; here all that are present are summed.
    `finished` are counters that rise as requests are done. `started` are gauges that hold the Unix time at which the
    engine's process, or its counters, came to be.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_use: tuple[str, ...] = ()
    prefix_hits: tuple[str, ...] = ()
    prefix_queries: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
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


def counter(name: str) -> tuple[str, ...]:
    """The names of a counter: clients of Prometheus put `_total` behind it, some engines and collectors do not."""
    return (f"{name}_total", name)


@dataclass(frozen=True, slots=True)
class LoadPage:
    """A JSON page that tells the load where there is no metrics page, as series under the names of metrics."""

    path: str
    read: Callable[[object], Samples]


@dataclass(frozen=True, slots=True)
class SaltForm:
    """What `cache_salt` may be; outside of it engines answer 400. `longest` in characters, None where unbounded."""

    longest: int | None = None
    forbidden: str = ""

    def takes(self, salt: str) -> bool:
        """Whether an engine takes it."""
        return bool(salt) and len(salt) <= (self.longest or len(salt)) and not set(salt) & set(self.forbidden)


Standings = Mapping[Feature, Standing]


def none_told(samples: Samples, info: Info) -> Standings:
    """For engines that do not say what is on."""
    return {}


def none_awake(samples: Samples) -> frozenset[str] | None:
    """For engines that never let go of a cache, or do not say so."""
    return None


def no_shape(samples: Samples, info: Info) -> CacheShape:
    """For engines that say nothing of their cache."""
    return CacheShape()


def no_event_sources(page: object, info: Info, host: str) -> tuple[EventSourceFacts, ...]:
    """For engines that publish no events of their cache, or do not say where."""
    return ()


def none_started(page: object) -> tuple[StartedAdapter, ...] | None:
    """For engines that list their adapters among their models, or nowhere."""
    return None


def no_adapters(samples: Samples) -> AdapterSample | None:
    """For engines that say nothing of LoRA adapters."""
    return None


def as_they_are(samples: Samples) -> Samples:
    """For engines whose series need no preparation."""
    return samples


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine speaks.

    `owned_by` are its signatures in `/v1/models`, `metric_prefix` the one on its metrics page, `signature` a page and a
    key of the JSON object that only this engine has there. `health_paths` and
    `info_paths` are tried in order, skipping those the version does not know (404); no health path means that
    `/v1/models` stands for health. `prepare` folds an engine's series into comparable ones before they are summed.
    `load_page` is read where there is no metrics page; a dialect without a `metrics_path` has none. `awake` tells of a
    load's series what holds a cache; where nothing does, an engine that `sleeps` answers nobody until it is told to
    wake, while others load what they are asked for. `reports_cached_tokens` is None where a flag decides; `tokenize`
    (in full from version `tokenizes_chats_since` on, where that is set), `tokenize_path`, `priority` and `refuses` as
    in `EndpointFacts`.

    `flags` turn features on, one that is not in it the engine has not; `told` reads from pages which of them are on.
    `short_names`: a model's tag `:latest` may be left out.

    `salt`: chat completions and completions heed `cache_salt` of that form; `salted_everywhere_since` is the first
    version known to heed it on every route it speaks, None where none is. A version that is not told counts as old.

    `adapters` reads what is said of LoRA adapters off a load's series.

    `rank_label` is the label by which series tell data-parallel ranks apart. From version `ranked_since` on the engine
    lets `RANK_HEADER` choose a rank, on `RANKED_ROUTES`; a version that is not told counts as old. `told_ranks` reads
    their number from the information page, None where it does not stand there.

    `adapters_path` is a page that lists adapters which are no models of their own, `started_adapters` reads it.

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
    signature: tuple[str, str] | None = None
    metrics: MetricNames = MetricNames()
    metrics_path: str | None = "/metrics"
    load_page: LoadPage | None = None
    awake: Callable[[Samples], frozenset[str] | None] = none_awake
    sleeps: bool = False
    health_paths: tuple[str, ...] = ()
    info_paths: tuple[str, ...] = ()
    prepare: Callable[[Samples], Samples] = as_they_are
    shape: Callable[[Samples, Info], CacheShape] = no_shape
    reports_cached_tokens: bool | None = None
    version_key: str = "version"
    max_model_len_info_key: tuple[str, ...] = ()
    flags: Mapping[Feature, str] = field(default_factory=dict, hash=False)
    told: Callable[[Samples, Info], Standings] = none_told
    short_names: bool = False
    salt: SaltForm | None = None
    salted_everywhere_since: tuple[int, ...] | None = None
    tokenize: TokenizeForm | None = None
    tokenize_path: str = "/tokenize"
    tokenizes_chats_since: tuple[int, ...] | None = None
    priority: PriorityForm | None = None
    refuses: frozenset[str] = frozenset()
    adapters: Callable[[Samples], AdapterSample | None] = no_adapters
    rank_label: str | None = None
    ranked_since: tuple[int, ...] | None = None
    told_ranks: Callable[[Info], int | None] = lambda info: None
    adapters_path: str | None = None
    started_adapters: Callable[[object], tuple[StartedAdapter, ...] | None] = none_started
    event_sources_path: str | None = None
    event_sources: Callable[[object, Info, str], tuple[EventSourceFacts, ...]] = no_event_sources
    routes: frozenset[str] = frozenset({CHAT, COMPLETIONS})
    uncertain_routes: tuple[str, ...] = NEWER_ROUTES
    open_paths: Mapping[str, Metering] = field(default_factory=dict, hash=False)
