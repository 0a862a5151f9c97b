"""Alerts and recording rules of the chart: what they ask for exists, and each alert says what to do about it."""

import re
from typing import Any

import promql_parser as promql
import pytest
import yaml

from tests.monitoring.declared import FILES, ROOT, TARGET_LABELS, documented, series
from tests.monitoring.queries import labels_of, selectors

RUNBOOK = ROOT / "docs" / "runbook.md"
Rule = dict[str, Any]


def read(name: str) -> list[Rule]:
    rules: list[Rule] = yaml.safe_load((FILES / name).read_text())
    return rules


ALERTS, RECORDINGS = read("alerts.yaml"), read("recording.yaml")


def level_of(name: str) -> set[str]:
    """The labels that the name of a recording says its series have."""
    return set(name.partition(":")[0].split("_"))


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDINGS], ids=lambda rule: rule.get("alert") or rule["record"])
def test_what_a_rule_asks_for_exists_and_is_of_its_own_namespace(rule: Rule) -> None:
    expression = promql.parse(rule["expr"])
    labels = labels_of(expression, series())
    for selector in selectors(expression):
        assert 'namespace="NAMESPACE"' in str(selector)
    if "record" in rule:
        assert labels == level_of(rule["record"])
    for name in re.findall(r"\$labels\.(\w+)", str(rule.get("annotations"))):
        assert name in labels


def test_a_label_or_a_series_that_nobody_has_is_found() -> None:
    for query in (
        "sum by (colour) (prefixgate_requests_total)",
        'prefixgate_requests_total{colour="red"}',
        "prefixgate_requests",
        "histogram_quantile(0.9, sum(prefixgate_decision_seconds_bucket))",
        "prefixgate_degraded * on (endpoint) prefixgate_endpoint_healthy",
    ):
        with pytest.raises(KeyError):
            labels_of(promql.parse(query), series())
    joined = "prefixgate_requests_total * on (pod) group_left (version) prefixgate_build_info"
    assert labels_of(promql.parse(joined), series()) == {"route", "state", "version", *TARGET_LABELS}


def test_values_of_labels_in_rules_are_told_by_the_documentation() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(prefixgate_\w+)` (\|.*)$", page, re.MULTILINE))
    for rule in (*ALERTS, *RECORDINGS):
        for selector in selectors(promql.parse(rule["expr"])):
            name = re.sub(r"_(total|bucket|count|sum)$", "", selector.name or "")
            for matcher in selector.matchers.matchers:
                if matcher.name in documented()[name][1]:
                    for value in matcher.value.split("|"):
                        assert re.search(rf"\b{value}\b", rows[name]), f"{name} has no {matcher.name} {value}"


def test_an_alert_has_a_name_a_severity_a_time_and_a_section_of_the_runbook() -> None:
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert re.fullmatch(r"Prefixgate[A-Z]\w+", alert["alert"])
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert re.fullmatch(r"\d+[mh]", alert["for"])
        assert alert["annotations"]["summary"].endswith(".")
        assert alert["annotations"]["runbook_url"] == f"RUNBOOK#{alert['alert'].lower()}"


def test_every_alert_has_its_section_in_the_runbook() -> None:
    headings = re.findall(r"^#+ (.*)$", RUNBOOK.read_text(), re.MULTILINE)
    assert [alert["alert"] for alert in ALERTS if alert["alert"] not in headings] == []


def test_recordings_have_names_of_their_own_that_say_metric_and_operation() -> None:
    names = [rule["record"] for rule in RECORDINGS]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"namespace(_endpoint|_kind|_state)*:prefixgate_\w+:\w+", name)
