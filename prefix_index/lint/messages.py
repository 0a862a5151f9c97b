"""A finding in a sentence, and as plain data."""

from collections.abc import Mapping
from typing import Final

from prefix_index.lint.types import Every, Finding

_EVERY: Final[Mapping[Every, str]] = {
    Every.CALL: "with every call",
    Every.SESSION: "with every session",
    Every.DAY: "once a day",
    Every.TENANT: "for each tenant",
    Every.CHANGE: "with every change of it",
}


def said(finding: Finding) -> str:
    """What is wrong, how much is lost for it, and how often. Holds no text of a prompt."""
    about = f" ({finding.subject})" if finding.subject and finding.place.request is None else ""
    parts = [f"{finding.rule.what}{about}"]
    if finding.lost_tokens is not None:
        parts.append(f"{finding.lost_tokens:,} tokens are computed again {_EVERY[finding.every]}")
    if finding.calls is not None:
        parts.append(f"in {finding.calls:,} of {finding.of:,} requests")
    if finding.also:
        more = len(finding.also)
        parts.append(f"and at {more} more place{'s' if more > 1 else ''}")
    if finding.note:
        parts.append(finding.note)
    return "; ".join(parts)


def as_data(finding: Finding) -> dict[str, object]:
    """All of a finding, for programs."""
    place = finding.place
    found: dict[str, object] = {
        "rule": finding.rule.id,
        "level": finding.level.name.lower(),
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "offset": place.offset,
        "cause": None if finding.cause is None else finding.cause.value,
        "subject": finding.subject,
        "lost_tokens_per_call": finding.lost_tokens,
        "every": finding.every.value,
        "message": said(finding),
        "why": finding.rule.why,
        "fix": finding.rule.fix,
        "safety": finding.rule.safety.value,
        "fingerprint": finding.fingerprint,
    }
    if place.request is not None:
        found |= {"request": place.request, "part": place.part, "calls": finding.calls, "of": finding.of}
    if finding.also:
        found["also"] = [{"line": one.line, "column": one.column, "offset": one.offset} for one in finding.also]
    if finding.shown:
        found["text"] = finding.shown
    return found
