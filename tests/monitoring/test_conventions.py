"""Every metric is named, described, measured and labelled as Prometheus' conventions have it."""

import re

from gateway.exposition import Form
from gateway.telemetry import Telemetry
from tests.monitoring.declared import Declared, declared, documented

OTHER_UNITS = re.compile(r"_(ms|millis|milliseconds|us|micros|minutes|hours|kb|mb|kib|mib|percent|pct)(_|$)")
LABELS = {
    *("route", "state", "endpoint", "reason", "outcome", "source", "model", "shape", "mode", "kind", "template"),
    *("version", "rank", "part", "class", "why", "fix", "fixes", "arm", "finish", "verdict", "step", "residency"),
    *("rule", "side", "by"),
}
"""What a label may be. Tenants, keys, adapters and what else a client can choose freely are none of them."""
COUNTS = re.compile(r"_(total|count|sum|bucket|created|info)$")


def names_of(*found: Declared) -> list[str]:
    return [one.name for one in found]


def test_a_name_is_of_the_gateway_in_base_units_and_without_the_suffix_of_a_series() -> None:
    named = re.compile(r"prefixgate(_[a-z0-9]+)+")
    wrong = [one for one in declared().values() if not named.fullmatch(one.name) or OTHER_UNITS.search(one.name)]
    wrong += [one for one in declared().values() if COUNTS.search(one.name) and one.name != "prefixgate_build_info"]
    assert names_of(*wrong) == []


def test_labels_are_of_a_known_few() -> None:
    assert {label for one in declared().values() for label in one.labels} - LABELS == set()
    assert names_of(*(one for one in declared().values() if len(set(one.labels)) < len(one.labels))) == []


def test_what_it_is_is_said_in_a_sentence() -> None:
    sentence = re.compile(r"[A-Z1][^\"\\\n]*\.")  # quotes, as the two forms would write them differently
    assert names_of(*(one for one in declared().values() if not sentence.fullmatch(one.what))) == []


def test_histograms_measure_seconds_and_a_gauge_never_counts_since_the_start() -> None:
    assert {one.kind for one in declared().values()} == {"counter", "gauge", "histogram"}
    histograms = [one for one in declared().values() if one.kind == "histogram"]
    assert names_of(*(one for one in histograms if not one.name.endswith("_seconds"))) == []
    counting = [one for one in declared().values() if one.kind == "gauge" and "since the start" in one.what]
    assert names_of(*counting) == []


def test_kind_and_labels_are_those_of_the_documentation() -> None:
    assert {one.name: (one.kind, one.labels) for one in declared().values()} == documented()


def test_a_time_of_a_user_or_an_engine_has_buckets_from_the_fastest_to_the_slowest() -> None:
    telemetry = Telemetry()
    telemetry.ttft_s("e")
    telemetry.duration_s("/v1/chat/completions")
    text = telemetry.exposition(Form.TEXT).decode()
    bounds = {
        name: [float(bound) for bound in re.findall(rf'^{name}_bucket{{.*le="([^"]*)"', text, re.MULTILINE)]
        for name in ("prefixgate_time_to_first_token_seconds", "prefixgate_request_duration_seconds")
    }
    for name, (first, last) in {
        "prefixgate_time_to_first_token_seconds": (0.01, 60),
        "prefixgate_request_duration_seconds": (0.05, 600),
    }.items():
        assert (bounds[name][0], *bounds[name][-2:]) == (first, last, float("inf"))
        steps = [later / earlier for earlier, later in zip(bounds[name], bounds[name][1:-1], strict=False)]
        assert max(steps) <= 3.0
