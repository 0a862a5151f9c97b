"""Prometheus metrics under vLLM's names, so that whatever reads vLLM reads this engine.

One registry an engine: two engines in a process do not mix. Gauges are read when scraped; counters and histograms are
raised on the engine's thread. Token counters count tokens, not requests. A request raises `prefix_cache_queries` (its
prompt) and `prefix_cache_hits` (what was cached) when it is first scheduled, once, however often it is preempted;
`prompt_tokens` when its first token is out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from backends.reference.types import FinishReason, Receipt

LABELS = ("engine", "model_name")
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """Where the gauges look when scraped; called from the server's thread, so each reads one number."""

    running: Callable[[], float]
    waiting: Callable[[], float]
    kv_usage: Callable[[], float]


@dataclass(slots=True)
class Timeline:
    """Instants of one request on a monotonic clock, in seconds; `None` until they happen."""

    arrived_s: float
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpeculationCounters:
    """What drafts come to."""

    drafts: Counter
    draft_tokens: Counter
    accepted_tokens: Counter


class EngineMetrics:
    """All metrics of one engine, and the three moments of a request that raise them."""

    def __init__(self, model_name: str, gauges: EngineGauges, cache_config: dict[str, str]) -> None:
        self._registry = CollectorRegistry()
        self._labels = ("0", model_name)
        self._gauge("num_requests_running", "Requests in the running batch.", gauges.running)
        self._gauge("num_requests_waiting", "Requests waiting to be scheduled.", gauges.waiting)
        self._gauge("kv_cache_usage_perc", "Share of KV blocks held by requests; 1 is all.", gauges.kv_usage)
        info = Gauge("vllm:cache_config_info", "Cache set-up.", (*cache_config, "engine"), registry=self._registry)
        info.labels(*cache_config.values(), "0").set(1)
        self.prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self.prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of requests whose prefill is done.")
        self.prompt_tokens_cached = self._counter("prompt_tokens_cached", "Prompt tokens taken from the cache.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens sampled.")
        self.preemptions = self._counter("num_preemptions", "Requests that lost their blocks and started over.")
        self.time_to_first_token = self._histogram("time_to_first_token_seconds", "Arrival to first token.")
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", "Token to token.", ITL_SECONDS)
        self.queue_time = self._histogram("request_queue_time_seconds", "Arrival to first scheduling.")
        self.prefill_time = self._histogram("request_prefill_time_seconds", "First scheduling to first token.")
        self.decode_time = self._histogram("request_decode_time_seconds", "First token to last token.")
        self.e2e_latency = self._histogram("e2e_request_latency_seconds", "Arrival to last token.")
        finished = Counter(
            "vllm:request_success", "Requests by how they ended.", (*LABELS, "finished_reason"), registry=self._registry
        )
        self._finished = {reason: finished.labels(*self._labels, reason.value) for reason in FinishReason}

    def observe_scheduled(self, times: Timeline, now_s: float, receipt: Receipt) -> None:
        """The request runs in the step that starts now; only its first time counts."""
        if times.scheduled_s is None:
            times.scheduled_s = now_s
            self.queue_time.observe(now_s - times.arrived_s)
            self.prefix_queries.inc(receipt.prompt_tokens)
            self.prefix_hits.inc(receipt.cached_tokens)

    def observe_token(self, times: Timeline, now_s: float, receipt: Receipt) -> None:
        """A token of the request is out."""
        if times.first_token_s is None or times.last_token_s is None:
            times.first_token_s = now_s
            self.time_to_first_token.observe(now_s - times.arrived_s)
            self.prefill_time.observe(now_s - (times.scheduled_s or times.arrived_s))
            self.prompt_tokens.inc(receipt.prompt_tokens)
            self.prompt_tokens_cached.inc(receipt.cached_tokens)
        else:
            self.inter_token_latency.observe(now_s - times.last_token_s)
        times.last_token_s = now_s
        self.generation_tokens.inc()

    def observe_end(self, times: Timeline, reason: FinishReason) -> None:
        """The request ended, for whatever reason."""
        self._finished[reason].inc()
        if times.first_token_s is not None and times.last_token_s is not None:
            self.decode_time.observe(times.last_token_s - times.first_token_s)
            self.e2e_latency.observe(times.last_token_s - times.arrived_s)

    def speculation(self) -> SpeculationCounters:
        """Counters of an engine that drafts; to be asked for once, by it alone."""
        return SpeculationCounters(
            drafts=self._counter("spec_decode_num_drafts", "Drafts made."),
            draft_tokens=self._counter("spec_decode_num_draft_tokens", "Tokens drafted."),
            accepted_tokens=self._counter("spec_decode_num_accepted_tokens", "Drafted tokens that were output."),
        )

    def exposition(self) -> bytes:
        """The text a scraper reads."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        gauge = Gauge(f"vllm:{name}", text, LABELS, registry=self._registry)
        gauge.labels(*self._labels).set_function(read)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, LABELS, registry=self._registry).labels(*self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self._registry)
        return histogram.labels(*self._labels)
