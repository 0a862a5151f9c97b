"""Metrics of requests whose prompt one endpoint computes and whose answer another makes."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges, histograms

_TRANSFER_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class SplitMetrics:
    """Labels are endpoints and our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decisions = counters(
            registry,
            "prefixgate_split_decisions",
            "Attempts in a fleet with prefill endpoints, by why the request was split (pays, needed) or was not.",
            ["reason"],
        )
        self.prefills = counters(
            registry,
            "prefixgate_prefill_legs",
            "Prompts computed for another endpoint, by what came of it: "
            "handed, ended, refused, failed, nothing_handed, cut; in_vain of those handed.",
            ["endpoint", "outcome"],
        )
        self.transfer_s = histograms(
            registry,
            "prefixgate_transfer_seconds",
            "Seconds from a decode call to its first token, by who answers.",
            ["endpoint"],
            _TRANSFER_BUCKETS_S,
        )
        self.carried_tokens = counters(
            registry, "prefixgate_carried_tokens", "Prompt tokens whose cache was carried to who answers.", ["endpoint"]
        )
        self.disputed = counters(
            registry,
            "prefixgate_decode_reports_disputed",
            "Answers whose decode engine reported other cached tokens than its version is to report.",
            ["endpoint"],
        )
        self.releases = counters(
            registry,
            "prefixgate_prefill_releases",
            "Prompts whose client left before they were carried, by what came of freeing them: freed, failed, nobody.",
            ["outcome"],
        )
        self.set_aside = gauges(
            registry,
            "prefixgate_prefill_set_aside",
            "1 while an endpoint takes part in no split, since it handed nothing over or failed with several others.",
            ["endpoint"],
        )
        self.pairs_set_aside = gauges(
            registry,
            "prefixgate_decode_set_aside",
            "Prefill endpoints whose prompts are not handed to who answers, since the two failed together.",
            ["endpoint"],
        )
