"""What in sources and captured requests breaks prefixes, and what it costs. Nothing is run, and no text comes out.

read_file           a file -> findings, by its kind             (files, python_reader, structured, text_reader)
Captured            requests in order -> findings               (capture_reader, capture_rules)
template_dates      a chat template at two times -> findings     (chat_dates)
RULES               what is looked for                          (rules)
said, as_data       a finding in words, as data                 (messages)
as_sarif            findings for code hosts                     (sarif)
Settings, baselines what is let pass                            (baseline)
"""

from prefix_index.lint.baseline import (
    LintSettingsInvalid,
    Settings,
    baseline_of,
    known_rules,
    read_baseline,
    read_settings,
    without_known,
)
from prefix_index.lint.capture_reader import Captured
from prefix_index.lint.captures import Request, body_of, request_of
from prefix_index.lint.chat_dates import template_dates
from prefix_index.lint.files import is_candidate, read_file, with_fingerprints
from prefix_index.lint.messages import as_data, said
from prefix_index.lint.rules import RULES
from prefix_index.lint.sarif import as_sarif
from prefix_index.lint.types import Asked, Every, Finding, Level, Place, Read, Rule, Safety, Skipped

__all__ = [
    "RULES",
    "Asked",
    "Captured",
    "Every",
    "Finding",
    "Level",
    "LintSettingsInvalid",
    "Place",
    "Read",
    "Request",
    "Rule",
    "Safety",
    "Settings",
    "Skipped",
    "as_data",
    "as_sarif",
    "baseline_of",
    "body_of",
    "is_candidate",
    "known_rules",
    "read_baseline",
    "read_file",
    "read_settings",
    "request_of",
    "said",
    "template_dates",
    "with_fingerprints",
    "without_known",
]
