"""How often a slot changes, judged by its name or by the expression in it.

    CURRENT_TIME -> per request, time       user_name -> per session, user       datetime.now() -> per request, time
    locale -> per tenant, config            question  -> per request, content    max_step_num   -> per tenant, config

A name is split into words (`userName`, `user-name`, `USER_NAME`: user, name), an expression into the names in it; the
first rule that fits decides, most telling first. What fits none changes with every request, for all that is known.
"""

import re
from typing import Final

from prefix_index.layout.types import Cause, Volatility

Judgement = tuple[Volatility, Cause]

_LONGEST_NAME: Final = 256
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"[a-z0-9]+|[^\W\d_]+")

OF_A_CLOCK: Final = re.compile(r"%-?[HIMSTXcrRsf]")
"""In a format of `strftime`: more than a day."""
_CALLS: Final[tuple[tuple[re.Pattern[str], Judgement], ...]] = (
    (re.compile(r"uuid\d?\b|randomuuid|ulid\(|nanoid"), (Volatility.PER_REQUEST, Cause.UUID)),
    (re.compile(r"random\.|secrets\.|token_hex|token_urlsafe|urandom|randint|math\.random"),
     (Volatility.PER_REQUEST, Cause.RANDOM)),
    (re.compile(r"date\.today\(|localdate\.now"), (Volatility.PER_SESSION, Cause.DATE)),
    (re.compile(r"time\.time|time_ns|date\.now\(|unixtime|monotonic\("), (Volatility.PER_REQUEST, Cause.EPOCH)),
    (re.compile(r"\bnow\(|utcnow|new date|gmtime|localtime|isoformat|datetime\.today"),
     (Volatility.PER_REQUEST, Cause.TIME)),
)  # fmt: skip
"""Calls, in lower case, of several languages."""

_TIME: Final = {"time", "now", "timestamp", "datetime", "clock", "utcnow", "uhrzeit"}
_DATE: Final = {"date", "today", "day", "weekday", "month", "year", "datum", "heute", "tomorrow", "yesterday"}
_CONFIG: Final = {
    "locale", "language", "lang", "max", "min", "limit", "limits", "num", "count", "settings", "config", "options",
    "style", "tone", "format", "schema", "model", "version", "tools", "tool", "functions", "agent", "agents", "company",
    "organization", "organisation", "tenant", "product", "brand", "timezone", "team", "members", "rules", "skills",
    "persona", "instructions", "guidelines", "examples", "env", "environment", "system", "release", "machine",
    "platform", "concurrent",
}  # fmt: skip
_HISTORY: Final = {"history", "messages", "conversation", "transcript", "memory", "memories", "summary", "chat"}
_CONTENT: Final = {
    "question", "query", "input", "prompt", "request", "documents", "document", "docs", "context", "contexts", "chunks",
    "passages", "results", "content", "text", "body", "topic", "task", "issue", "problem", "statement", "message",
    "observation", "observations", "findings", "article", "webpage", "page", "code", "file", "files", "diff", "email",
    "answer", "section", "sections", "description", "goal", "title", "data", "url", "snippet", "feedback", "brief",
    "resources", "resource", "steps",
}  # fmt: skip
_COUNTERS: Final = {"counter", "iteration", "attempt", "turn", "step"}
_TOLD: Final = {"description", "descriptions", "text", "result", "results", "output", "outputs", "name"}
"""`step_description` is no number."""
_FORMS: Final = {"format", "layout", "column", "field", "range"}
"""`date_format` is no date."""
_PIECES: Final = {"section", "sections", "block", "blocks"}
_PLACES: Final = {"dir", "directory", "cwd", "path", "repo", "repository", "workspace", "project"}
_PEOPLE: Final = {"user", "customer", "client", "member", "caller", "username", "account", "person", "profile"}
_IDS: Final = {"id", "ids", "uid", "key", "number", "no", "nr"}


def judged_name(name: str) -> Judgement:
    """How often a slot of this name (or expression) changes, and why. O(length), the first 256 characters."""
    said = name[:_LONGEST_NAME]
    lowered = said.lower()
    if "strftime" in lowered:
        clock = OF_A_CLOCK.search(said) or "%" not in said
        return (Volatility.PER_REQUEST, Cause.TIME) if clock else (Volatility.PER_SESSION, Cause.DATE)
    for pattern, judgement in _CALLS:
        if pattern.search(lowered):
            return judgement
    listed = _WORD.findall(_HUMPS.sub(" ", said).replace("_", " ").lower())
    words = set(listed)
    if len(words) > 1 and listed[-1] in _PIECES:  # `skills_section`: a piece of a prompt, about what is before it
        words -= _PIECES
    return _by_words(words)


def _by_words(words: set[str]) -> Judgement:
    identified = _by_id(words)
    if identified is not None:
        return identified
    if words & {"number", "max", "min", "limit", "num", "count"} and len(words) > 1:
        return Volatility.PER_TENANT, Cause.CONFIG
    if words & (_TIME | _DATE) and words & _FORMS:
        return Volatility.PER_TENANT, Cause.CONFIG
    if words & _TIME and not words & {"zone", "limit", "timeout", "avg", "average", "between"}:
        return Volatility.PER_REQUEST, Cause.TIME
    if words & _DATE:
        return Volatility.PER_SESSION, Cause.DATE
    return _by_subject(words)


def _by_id(words: set[str]) -> Judgement | None:
    if words & {"uuid", "guid", "ulid"}:
        return Volatility.PER_REQUEST, Cause.UUID
    if words & {"nonce", "random", "rand", "seed"}:
        return Volatility.PER_REQUEST, Cause.RANDOM
    if words & {"epoch", "unix"}:
        return Volatility.PER_REQUEST, Cause.EPOCH
    if words & _COUNTERS and not words & {"max", "min", *_TOLD}:
        return Volatility.PER_REQUEST, Cause.COUNTER
    if not words & _IDS:
        return None
    if words & {"session", "conversation", "thread", "chat"}:
        return Volatility.PER_SESSION, Cause.SESSION_ID
    if words & {"request", "trace", "span", "correlation", "run", "message", "call", "transaction", "job"}:
        return Volatility.PER_REQUEST, Cause.REQUEST_ID
    return None


def _by_subject(words: set[str]) -> Judgement:
    if words & {"tenant", "organization", "organisation", "company"}:
        return Volatility.PER_TENANT, Cause.CONFIG
    if words & _PEOPLE and not words & {"query", "question", "input", "message", "messages", "prompt", "request"}:
        return Volatility.PER_SESSION, Cause.USER
    if words & {"name"} and words & {"first", "last", "full", "nick", "display"}:
        return Volatility.PER_SESSION, Cause.USER
    if words & _HISTORY:
        return Volatility.PER_SESSION, Cause.CONTENT
    if words & _CONTENT and not words & {"format", "schema", "instructions", "guidelines"}:
        return Volatility.PER_REQUEST, Cause.CONTENT
    if words & _PLACES:
        return Volatility.PER_SESSION, Cause.CONTENT
    if words & _CONFIG:
        return Volatility.PER_TENANT, Cause.CONFIG
    return Volatility.PER_REQUEST, Cause.UNKNOWN
