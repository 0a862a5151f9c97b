"""A dialect: what differs between model servers, as data and pure functions.

    /v1/models, /metrics ──which──> Dialect ──facts──> EndpointFacts
                                            ──load───> LoadSample
                                            ──tokenize_text, tokenize_chat──> TokenizeCall ──read_token_ids──> ids

A dialect does no I/O. Metric names are tuples of alternatives, newest first: the first one present on a page counts,
so one dialect reads every version of its engine. What a page does not say stays None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.errors import UnexpectedAnswer

Series = tuple[Mapping[str, str], float]
"""Labels and value of one line of a metrics page."""

Samples = Mapping[str, Sequence[Series]]
"""The series of a metrics page by metric name, only the names asked for; a NaN is left out."""

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
    """Size of an endpoint's KV cache: tokens a block, and capacity in tokens over all ranks; None is unknown."""

    block_size: int | None = None
    capacity_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TokenizeCall:
    """A request that asks an engine for token ids."""

    path: str
    body: Mapping[str, object]


def no_shape(samples: Samples, info: Info) -> CacheShape:
    """For engines that say nothing of their cache."""
    return CacheShape()


def no_tokenize(model: str, content: object, *options: object) -> TokenizeCall | None:
    """For engines that cannot be asked for token ids."""
    return None


def as_they_are(samples: Samples) -> Samples:
    """For engines whose series need no preparation."""
    return samples


def read_tokens_field(answer: object) -> tuple[int, ...]:
    """Token ids of an answer `{"tokens": [1, 2, ...]}`; UnexpectedAnswer when it is something else."""
    tokens = answer.get("tokens") if isinstance(answer, Mapping) else None
    if not isinstance(tokens, Sequence) or not all(isinstance(token, int) for token in tokens):
        raise UnexpectedAnswer("list of token ids")
    return tuple(tokens)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine speaks.

    `owned_by` are its signatures in `/v1/models`, `metric_prefix` the one on its metrics page. `health_paths` and
    `info_paths` are tried in order, skipping those the version does not know (404); no health path means that
    `/v1/models` stands for health. `prepare` folds an engine's series into comparable ones before they are summed.
    `reports_cached_tokens` and `cached_tokens_flag` as in `EndpointFacts`. `tokenize_text` takes model, text and
    whether to add special tokens; `tokenize_chat` takes model, messages and tools; both return None where the engine
    cannot do it, and `read_token_ids` reads their answers, raising `UnexpectedAnswer` on anything else.
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
    tokenize_text: Callable[[str, str, bool], TokenizeCall | None] = no_tokenize
    tokenize_chat: Callable[[str, Sequence[object], Sequence[object] | None], TokenizeCall | None] = no_tokenize
    read_token_ids: Callable[[object], tuple[int, ...]] = read_tokens_field
