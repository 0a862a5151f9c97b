"""The rules, as promtool runs them: `make grafana-test`. Its name keeps it out of the suite, which has no promtool."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.exposition import Form
from gateway.telemetry import Telemetry
from tests.monitoring.prometheus import NAMESPACE, promtool, rules
from tests.monitoring.rule_cases import CASES, RECORDED, Series


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    return tmp_path


def inputs(series: Series) -> list[dict[str, str]]:
    """With the labels of a target."""
    found = []
    for name, values in series.items():
        metric, _, labels = name.removesuffix("}").partition("{")
        target = ",".join(filter(None, [f'namespace="{NAMESPACE}"', 'pod="gate-0"', labels]))
        found.append({"series": f"{metric}{{{target}}}", "values": values})
    return found


def tried(folder: Path, *tests: dict[str, Any]) -> None:
    file = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **t} for t in tests],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(file))
    promtool("test", "rules", "test.yaml", within=folder)


def test_promtool_takes_all_rules(folder: Path) -> None:
    said = promtool("check", "rules", "rules.yaml", within=folder)
    assert re.search(r"SUCCESS: \d+ rules found", said)


def test_every_alert_fires_and_says_what_is_wrong(folder: Path) -> None:
    severities = {one["alert"]: one["labels"]["severity"] for one in rules()["groups"][0]["rules"]}
    assert {case.alert for case in CASES} == set(severities)
    tests = []
    for case in CASES:
        words = {"summary": case.summary, "runbook_url": f"docs/runbook.md#{case.alert.lower()}"}
        alert = {"exp_labels": {**case.labels, "severity": severities[case.alert]}, "exp_annotations": words}
        wanted = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": [alert]}
        tests.append({"input_series": inputs(case.fires), "alert_rule_test": [wanted]})
    tried(folder, *tests)


def test_no_alert_fires_where_it_should_not(folder: Path) -> None:
    tests = []
    for case in CASES:
        wanted = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": []}
        tests.append({"input_series": inputs(case.silent), "alert_rule_test": [wanted]})
    tried(folder, *tests)


def test_recordings_are_what_they_say(folder: Path) -> None:
    for series, name, value in RECORDED.values():
        at = ',endpoint="a"' if name.startswith("namespace_endpoint:") else ""
        sample = {"labels": f'{{namespace="{NAMESPACE}"{at}}}', "value": value}
        wanted = {"expr": f"round({name}, 0.0001)", "eval_time": "40m", "exp_samples": [sample]}
        tried(folder, {"input_series": inputs(series), "promql_expr_test": [wanted]})


def test_promtool_finds_nothing_to_say_of_our_metrics(tmp_path: Path) -> None:
    said = promtool("check", "metrics", within=tmp_path, stdin=Telemetry().exposition(Form.TEXT).decode())
    assert said == ""
