"""What comes out: SARIF, plain data, baselines, settings; and the dates that chat templates write."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from prefix_index.lint import (
    RULES,
    Asked,
    Every,
    Finding,
    LintSettingsInvalid,
    Place,
    Settings,
    Skipped,
    as_data,
    as_sarif,
    baseline_of,
    read_baseline,
    read_file,
    read_settings,
    said,
    template_dates,
    without_known,
)

FIXED = "Be kind, brief and exact in all that you say, and name the shelf of each book that you speak of.\n" * 4
DOCS = Path(__file__).parents[3] / "docs" / "lint.md"


def findings(path: str = "prompts/ä b.jinja") -> list[Finding]:
    return read_file(path, "{{ now }} {{ uuid }}\n" + FIXED, Asked(), is_named=True).findings


def checked_sarif(log: Any) -> list[Any]:
    """What the schema of SARIF 2.1.0 asks of what we write; the results."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].startswith("https://")
    assert set(log) <= {"$schema", "version", "runs"}
    (run,) = log["runs"]
    assert set(run) <= {"tool", "columnKind", "results", "invocations"}
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    driver = run["tool"]["driver"]
    assert set(driver) <= {"name", "semanticVersion", "rules"}
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:
        assert set(rule) <= {
            *("id", "shortDescription", "fullDescription", "help", "defaultConfiguration", "properties")
        }
        assert all(rule[name]["text"] for name in ("shortDescription", "fullDescription", "help"))
        assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
    for one in run["invocations"]:
        assert isinstance(one["executionSuccessful"], bool)
    for result in run["results"]:
        assert result["ruleId"] == ids[result["ruleIndex"]]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        for location in result["locations"]:
            physical = location["physicalLocation"]
            assert not set(physical["artifactLocation"]["uri"]) & set(' "<>\\^`{|}')
            assert all(value >= 1 for name, value in physical["region"].items() if name != "charOffset")
            assert physical["region"].get("charOffset", 0) >= 0
    return run["results"]  # type: ignore[no-any-return]


def test_sarif_is_as_its_schema_asks() -> None:
    log = json.loads(json.dumps(as_sarif(findings(), [Skipped("a b.py", "no Python")], "1.2.3")))
    results = checked_sarif(log)
    assert [one["ruleId"] for one in results] == ["time-before-fixed", "uuid-before-fixed"]
    place = results[1]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "prompts/%C3%A4%20b.jinja"
    assert place["region"] == {"startLine": 1, "startColumn": 11, "charOffset": 10}
    assert results[0]["partialFingerprints"] != results[1]["partialFingerprints"]
    (note,) = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "no Python"


def test_a_file_whose_name_is_no_utf8_is_named_by_its_bytes() -> None:
    log: Any = as_sarif([], [Skipped("bad\udcff.py", "no Python")], "1")
    (result,) = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "bad%FF.py"


def test_sarif_without_findings_is_a_log_too() -> None:
    assert checked_sarif(as_sarif([], [], "1")) == []


def test_data_say_all_and_are_json() -> None:
    data = json.loads(json.dumps(as_data(findings()[0])))
    assert (data["rule"], data["line"], data["column"], data["subject"]) == ("time-before-fixed", 1, 1, "now")
    assert data["safety"] == "consent"
    assert data["message"] == said(findings()[0])


def test_what_is_in_a_baseline_passes_as_often_as_it_is_in_it() -> None:
    first = findings()
    known = read_baseline(baseline_of(first), "b.json")
    assert without_known(first, known) == []
    assert without_known([*first, first[0]], known) == [first[0]]
    assert without_known(first, Counter()) == first


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "fingerprints": []}', '{"version": 1, "fingerprints": [1]}']
)
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(LintSettingsInvalid, match=r"b\.json"):
        read_baseline(text, "b.json")


def test_settings_name_rules_and_paths() -> None:
    settings = read_settings("ignore: [under-block]\nexclude: [tests/**, generated, '*.gen.py']\n", "s")
    assert settings.ignore == {"under-block"}
    assert [settings.excludes(path) for path in ("tests/a/b.py", "a/generated/b.py", "x.gen.py", "a/b.py")] == [
        *(True, True, True, False)
    ]
    assert read_settings("", "s") == Settings()


@pytest.mark.parametrize(
    "text", ["ignore: [no-such-rule]", "ignore: under-block", "other: 1", "[", "exclude: [1]", "- a"]
)
def test_settings_that_say_something_else_are_refused(text: str) -> None:
    with pytest.raises(LintSettingsInvalid, match=r"s\.yaml"):
        read_settings(text, "s.yaml")


def rendered(template: Callable[[datetime], str]) -> Callable[[datetime], Sequence[int]]:
    return lambda now: [ord(letter) for letter in template(now)]


@pytest.mark.parametrize(("layout", "every"), [("%d %b %Y", Every.DAY), ("%H:%M", Every.CALL), ("always", None)])
def test_a_template_that_writes_the_date_is_found_by_rendering_it_at_other_times(
    layout: str, every: Every | None
) -> None:
    found = template_dates(Place("m"), rendered(lambda now: f"Today: {now:{layout}} " + "x" * 100), Asked())
    assert (found and found.every) == every
    if found is not None:
        assert found.lost_tokens in {96, 112}
        assert found.subject.startswith("token ")


def test_every_rule_is_documented_with_what_to_do() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [rule.id for rule in RULES.values() if f"| `{rule.id}` |" not in text or rule.fix not in text]
    assert missing == []
    assert all(rule.what and rule.why.endswith(".") and rule.fix.endswith(".") for rule in RULES.values())
