"""Metrics of limits, budgets and keys."""

from prometheus_client import CollectorRegistry, Gauge

from gateway.metrics import counters, histograms

_ASKING_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)


class LimitMetrics:
    """Labels are our own enumerations, never tenants or keys: the ledger has those."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refused = counters(
            registry,
            "prefixgate_limit_refusals",
            "Requests refused by a limit: requests, tokens, concurrent, budget, budget_held, unpriced, unavailable.",
            ["kind"],
        )
        self.asking_s = histograms(
            registry,
            "prefixgate_limit_seconds",
            "Time that requests under limits waited to be let in or refused.",
            (),
            _ASKING_BUCKETS_S,
        )()
        self.unpriced = counters(
            registry,
            "prefixgate_limit_unpriced",
            "Requests under a budget that were let in without a price, so that nothing was held for them.",
            (),
        )()
        self.stand_in = counters(
            registry,
            "prefixgate_limit_stand_in_answers",
            "Requests that were decided without Redis, although there is one.",
            (),
        )()
        self.owed = Gauge(
            "prefixgate_limit_owed_settlements", "Settlements that Redis has not taken yet.", registry=registry
        )
        self.dropped = counters(
            registry,
            "prefixgate_limit_dropped_settlements",
            "Settlements that Redis never got; the ledger has them.",
            (),
        )()
        self.keys_reloads = counters(
            registry,
            "prefixgate_keys_reloads",
            "Changed keys files by what became of them: taken, invalid.",
            ["outcome"],
        )
