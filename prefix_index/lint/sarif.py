"""Findings as SARIF 2.1.0, the form in which code hosts take the results of linters.

Only what a finding says: no text of prompts. Columns are counted in characters, as everywhere here.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

from prefix_index.lint.messages import said
from prefix_index.lint.rules import RULES
from prefix_index.lint.types import Finding, Level, Rule, Skipped

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION: Final = "2.1.0"
_LEVELS: Final[Mapping[Level, str]] = {Level.NOTE: "note", Level.WARNING: "warning", Level.ERROR: "error"}


def as_sarif(findings: Sequence[Finding], skipped: Iterable[Skipped], version: str) -> dict[str, object]:
    """A SARIF log of one run of this linter, `version` of it."""
    rules = list({**RULES, **{one.rule.id: one.rule for one in findings}}.values())
    places = {rule.id: at for at, rule in enumerate(rules)}
    run: dict[str, object] = {
        "tool": {
            "driver": {"name": "prefixgate lint", "semanticVersion": version, "rules": [_rule(rule) for rule in rules]}
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, places[one.rule.id]) for one in findings],
        "invocations": [
            {"executionSuccessful": True, "toolExecutionNotifications": [_notification(one) for one in skipped]}
        ],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.what}."},
        "fullDescription": {"text": f"{rule.what}. {rule.why}"},
        "help": {"text": f"{rule.fix} ({rule.safety.value})"},
        "defaultConfiguration": {"level": _LEVELS[rule.level]},
        "properties": {"safety": rule.safety.value, "tags": ["prefix-cache"]},
    }


def _result(finding: Finding, at: int) -> dict[str, object]:
    properties: dict[str, object] = {"every": finding.every.value, "safety": finding.rule.safety.value}
    if finding.lost_tokens is not None:
        properties["lostTokens"] = finding.lost_tokens
    result: dict[str, object] = {
        "ruleId": finding.rule.id,
        "ruleIndex": at,
        "level": _LEVELS[finding.level],
        "message": {"text": said(finding)},
        "locations": [_location(finding)],
        "properties": properties,
    }
    if finding.fingerprint:
        result["partialFingerprints"] = {"prefixgate/v1": finding.fingerprint}
    return result


def _location(finding: Finding) -> dict[str, object]:
    place = finding.place
    region: dict[str, object] = {"startLine": place.line, "startColumn": place.column}
    if place.request is None:
        region["charOffset"] = place.offset
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(place.path)}, "region": region}}


def _uri(path: str) -> str:
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix(), errors="surrogateescape")


def _notification(skipped: Skipped) -> dict[str, object]:
    return {
        "level": "warning",
        "message": {"text": skipped.why},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(skipped.path)}}}],
    }
