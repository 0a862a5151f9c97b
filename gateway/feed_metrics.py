"""Metrics of feeds of KV events, by endpoint and rank."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges


class FeedMetrics:
    """Brought up to date at a scrape. States and kinds are enumerations of ours."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state = gauges(
            registry,
            "prefixgate_kv_feed_state",
            "1 for the state in which the feed of an endpoint's KV events is.",
            ["endpoint", "rank", "state"],
        )
        self._events = counters(
            registry,
            "prefixgate_kv_feed_events",
            "What the feed of an endpoint's KV events has counted, by kind.",
            ["endpoint", "rank", "kind"],
        )
        self._blocks = gauges(
            registry, "prefixgate_kv_feed_blocks", "Blocks followed by KV events.", ["endpoint", "rank"]
        )
        self._lag_s = gauges(
            registry,
            "prefixgate_kv_feed_lag_seconds",
            "Age of the last KV events when they were applied, by the clocks of engine and gateway.",
            ["endpoint", "rank"],
        )

    def show_state(self, endpoint_id: str, rank: int, state: str, states: Iterable[str]) -> None:
        """In which of the states a feed is."""
        for one in states:
            self._state(endpoint_id, rank, one).set(one == state)

    def show_counts(self, endpoint_id: str, rank: int, counts: Mapping[str, int]) -> None:
        """What a feed has counted, by kind."""
        for kind, count in counts.items():
            self._events(endpoint_id, rank, kind).stands_at(count)

    def show_mirror(self, endpoint_id: str, rank: int, blocks: int | None, lag_s: float | None) -> None:
        """What it follows, and how far behind; None is unknown, and leaves what was said last."""
        if blocks is not None:
            self._blocks(endpoint_id, rank).set(blocks)
        if lag_s is not None:
            self._lag_s(endpoint_id, rank).set(lag_s)
