"""What the gateway says about itself in metrics; its log is in `log_lines.py`.

Labels are bounded: routes, endpoints, reasons, shapes and outcomes come from our own enumerations or the
configuration, models from the engines, never from a client. What is counted while serving is of `metrics.py`, which is
cheaper; what a scrape fills in is the library's.
"""

from prometheus_client import CollectorRegistry, Gauge

from gateway.adapter_metrics import AdapterMetrics
from gateway.continuation_metrics import ContinuationMetrics
from gateway.discovery_metrics import DiscoveryMetrics
from gateway.epp_metrics import EppMetrics
from gateway.exposition import Form, told
from gateway.feed_metrics import FeedMetrics
from gateway.fix_metrics import FixMetrics
from gateway.health_metrics import HealthMetrics
from gateway.limit_metrics import LimitMetrics
from gateway.log_lines import dropped_lines
from gateway.metrics import SeriesRegistry, counter_read, counters, gauges, histograms
from gateway.pressure_metrics import PressureMetrics
from gateway.product_version import with_version
from gateway.queue_metrics import QueueMetrics
from gateway.route_metrics import RouteMetrics
from gateway.split_metrics import SplitMetrics
from gateway.template_metrics import TemplateMetrics
from gateway.timing import StepTimes
from gateway.ui_metrics import UiMetrics
from gateway.verification_metrics import VerificationMetrics

_DURATION_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REGRET_BUCKETS_S = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PREDICTION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_OVERHEAD_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


class Telemetry:
    """All metrics of one gateway process, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = with_version(SeriesRegistry())
        self.requests = counters(
            registry, "prefixgate_requests", "Client requests by route and how they ended.", ["route", "state"]
        )
        self.decisions = counters(
            registry,
            "prefixgate_decisions",
            "Routing decisions by chosen endpoint and reason; the reasons sum to the decisions.",
            ["endpoint", "reason"],
        )
        self.observed_decisions = counters(
            registry,
            "prefixgate_observed_decisions",
            "Decisions while another policy is watched, by what that one would have chosen: same, other.",
            ["outcome"],
        )
        self.reasons = counters(
            registry,
            "prefixgate_reasons",
            "Client requests by why they had, or had not, a prefix to go by; they sum to the client requests.",
            ["reason"],
        )
        self.prompts = counters(
            registry,
            "prefixgate_prompts",
            "Prompts by where their token ids came from: local, engine, bytes, none.",
            ["source"],
        )
        self.token_comparisons = counters(
            registry,
            "prefixgate_token_comparisons",
            "The gateway's count of a prompt's tokens against the engine's, by model, shape and outcome.",
            ["model", "shape", "outcome"],
        )
        self.token_parity_ratio = gauges(
            registry,
            "prefixgate_token_parity_ratio",
            "Share of the last 256 comparisons of this model and shape in which both counted the same.",
            ["model", "shape"],
        )
        self.next_turns = counters(
            registry,
            "prefixgate_next_turns",
            "Complete answers by what the index learned from them for the next turn.",
            ["outcome"],
        )
        self.receipts = counters(
            registry,
            "prefixgate_receipts",
            "Attempts by what they said of the cache: agreed, less, more, unreported, inexact, not_computed.",
            ["endpoint", "mode", "outcome"],
        )
        self.expected_vs_reported = counters(
            registry,
            "prefixgate_expected_vs_reported",
            "Tokens of answers whose cached tokens were expected and reported, and by how many these differ.",
            ["endpoint", "mode", "kind"],
        )
        self.inferred_restarts = counters(
            registry,
            "prefixgate_inferred_restarts",
            "Caches taken for emptied, since too much was missing at once.",
            ["endpoint"],
        )
        self.attempts_failed = counters(
            registry,
            "prefixgate_attempts_failed",
            "Attempts that failed before the first byte, by endpoint.",
            ["endpoint"],
        )
        self.tokens = counters(
            registry,
            "prefixgate_tokens",
            "Tokens by kind: prompt, prompt_reported (its cached ones are told), cached, cached_expected, output.",
            ["endpoint", "kind"],
        )
        self.unreported = counters(
            registry,
            "prefixgate_cached_unreported",
            "Answers whose engine did not say how many prompt tokens were cached.",
            ["endpoint"],
        )
        self.token_count_mismatch = counters(
            registry,
            "prefixgate_token_count_mismatch",
            "Answers whose prompt token count differs from the gateway's own.",
            ["endpoint"],
        )
        self.ttft_s = histograms(
            registry,
            "prefixgate_time_to_first_token_seconds",
            "From the request's arrival to the first bytes of the answer.",
            ["endpoint"],
            _TTFT_BUCKETS_S,
        )
        self.duration_s = histograms(
            registry,
            "prefixgate_request_duration_seconds",
            "From the request's arrival to the end of its answer.",
            ["route"],
            _DURATION_BUCKETS_S,
        )
        self.overhead_s = histograms(
            registry,
            "prefixgate_decision_seconds",
            "From the request's arrival to its dispatch: parsing, tokens, index and decision.",
            (),
            _OVERHEAD_BUCKETS_S,
        )()
        self.decision_regret_s = histograms(
            registry,
            "prefixgate_decision_regret_seconds",
            "Cost of the chosen endpoint in hindsight less the least of all, of requests whose prompt was computed.",
            (),
            _REGRET_BUCKETS_S,
        )()
        self.ttft_prediction_error_s = histograms(
            registry,
            "prefixgate_ttft_prediction_error_seconds",
            "Time from dispatch to first token: what was predicted against what it was, by whether that was too long.",
            ["kind"],
            _PREDICTION_BUCKETS_S,
        )
        self.in_flight = gauges(registry, "prefixgate_in_flight_requests", "Requests being served.", ())()
        counter_read(
            registry, "prefixgate_log_lines_dropped", "Log lines that were lost, since nobody took them.", dropped_lines
        )
        self.steps = StepTimes(registry)
        self.trace_spans = counters(
            registry,
            "prefixgate_trace_spans",
            "Spans by what became of them: sent, failed (the collector did not take them), dropped (too many waited).",
            ["outcome"],
        )
        self.metric_exports = counters(
            registry,
            "prefixgate_metric_exports",
            "Messages with metrics for a collector, by what became of them: sent, failed.",
            ["outcome"],
        )
        self.speed, self.verification = SpeedMetrics(registry), VerificationMetrics(registry)
        self.pressure, self.fixes = PressureMetrics(registry), FixMetrics(registry)
        self.queue, self.routes = QueueMetrics(registry), RouteMetrics(registry)
        self.epp = EppMetrics(registry)
        self.templates, self.splits = TemplateMetrics(registry), SplitMetrics(registry)
        self.limits, self.copies, self.prewarm = LimitMetrics(registry), CopyMetrics(registry), PrewarmMetrics(registry)
        self.discovery, self.continuation = DiscoveryMetrics(registry), ContinuationMetrics(registry)
        self.ui = UiMetrics(registry)
        self.health, self.adapters, self.feeds = (
            HealthMetrics(registry),
            AdapterMetrics(registry),
            FeedMetrics(registry),
        )
        self.endpoint_healthy = Gauge(
            "prefixgate_endpoint_healthy", "1 while the endpoint takes requests.", ["endpoint"], registry=registry
        )
        self.degraded = Gauge(
            "prefixgate_degraded", "1 while the named part works in a reduced way.", ["part"], registry=registry
        )
        self.index_dropped_writes = counters(
            registry, "prefixgate_index_dropped_writes", "Index writes that were dropped.", ()
        )()
        self.index_queued_writes = Gauge(
            "prefixgate_index_queued_writes", "Index writes on their way to Redis.", registry=registry
        )
        self.index_stand_in_matches = counters(
            registry,
            "prefixgate_index_stand_in_matches",
            "Matches that this replica answered alone, although there is a Redis.",
            (),
        )()

    def names(self) -> frozenset[str]:
        """The names of all metrics, as they stand in the exposition."""
        return frozenset(family.name for family in self.registry.collect())

    def forget_endpoint(self, endpoint_id: str) -> None:
        """Drop the series of an endpoint that is none of the fleet any more."""
        self.registry.forget("endpoint", endpoint_id)

    def exposition(self, form: Form = Form.TEXT) -> bytes:
        """The text that Prometheus scrapes. Blocking: milliseconds; call it in a thread."""
        return told(self.registry, form)


class CopyMetrics:
    """Copies of hot prefixes that were made on purpose, and whether they paid."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._made = counters(
            registry,
            "prefixgate_prefix_copies",
            "Requests that were sent where their hot prefix was not, so that one more endpoint has it.",
            (),
        )()
        self._cost_s = counters(
            registry, "prefixgate_prefix_copy_cost_seconds", "What these copies cost, as thought.", ()
        )()
        self._saved_s = counters(
            registry,
            "prefixgate_prefix_copy_saved_seconds",
            "What later requests cost less at the copies than at the holders that there were without, as thought.",
            (),
        )()

    def note(self, cost_s: float, saved_s: float) -> None:
        """A decision made a copy at this cost, or saved so much at one; 0: not so."""
        if cost_s:
            self._made.inc()
            self._cost_s.inc(cost_s)
        elif saved_s:
            self._saved_s.inc(saved_s)


class PrewarmMetrics:
    """The gateway's own requests, to endpoints that came back empty."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = counters(
            registry,
            "prefixgate_prewarm_requests",
            "Prompts for an endpoint that came back empty, by what became of them: computed, held, refused, failed.",
            ["endpoint", "outcome"],
        )
        self.tokens = counters(
            registry, "prefixgate_prewarm_tokens", "Prompt tokens that were computed for that.", ["endpoint"]
        )


class SpeedMetrics:
    """The fitted speed of each endpoint, by its name."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.base_s = gauges(
            registry, "prefixgate_perf_base_seconds", "Fixed seconds of a prefill, as fitted.", ["endpoint"]
        )
        self.prefill_tokens_per_s = gauges(
            registry,
            "prefixgate_perf_prefill_tokens_per_second",
            "Prefill rate without attention's part, as fitted.",
            ["endpoint"],
        )
        self.quad_s = gauges(
            registry,
            "prefixgate_perf_quadratic_seconds",
            "Seconds of a prefill for each pair of an uncached and a prompt token, as fitted.",
            ["endpoint"],
        )
        self.itl_s = gauges(
            registry, "prefixgate_perf_itl_seconds", "Seconds between tokens of an answer, as fitted.", ["endpoint"]
        )
        self.samples = counters(
            registry,
            "prefixgate_perf_samples",
            "Measurements of an endpoint's speed: alone, summed, clamped, refused, decode.",
            ["endpoint", "kind"],
        )
