"""Literals that change from call to call, found in rendered text.

    You are helping Ada Byron. Today is Monday, 3 March 2025. Prices as of 2024-01-01 stay. Request id: 7f3a9c01
                    ^^^^^^^^^ user       ^^^^^^^^^^^^^^^^^^^^ date, cued     ^^^^^^^^^^ date, static         ^^^^^^^^ id

A form finds candidates (forms.py); the words before it in the same line decide how sure it is that it changes. A form
alone is enough only where nobody writes such a thing by hand: a UUID, a time to the second.

Cost: linear, some 0.15 µs a character of prose. Every form begins where no word goes on, and repeats at most a fixed
number of times, so each character is looked at a bounded number of times, whatever the text is; a look back is at most
`_CUE_CHARS`.
"""

import re
from collections.abc import Iterator
from typing import Final

from prefix_index.layout.forms import COUNTERS, FORMS, NAMED_VALUES, NUMBERS, Form
from prefix_index.layout.types import Cause, Certainty, Spot, Volatility

_CUE_CHARS: Final = 64
_BY_TRIGGER: Final = {
    trigger: (
        [form for form in FORMS if form.near is trigger],
        [named for named in NAMED_VALUES if named.near is trigger],
    )
    for trigger in dict.fromkeys([*(form.near for form in FORMS), *(named.near for named in NAMED_VALUES)])
}

_NOW: Final = re.compile(
    r"(?<![A-Za-z])(?:today|tonight|now|current|currently|at present|right now|generated (?:at|on)|requested (?:at|on)|"
    r"heute|jetzt|aktuell\w{0,3})(?![A-Za-z])"
    r"|今天|今日|现在|現在|当前|當前|目前|本日",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(
    r"^[ \t>*#<\[(-]{0,8}(?:date|time|timestamp|date ?time|clock|ts|epoch|datum|uhrzeit|stand|日付|日期|"
    r"时间|時間|時刻|日時)[\W_]{0,8}$",
    re.IGNORECASE,
)
"""All that stands before in the line: a name for what follows, and no sentence."""
_QUOTED: Final = ("`", '"', "'")
_STATIC: Final = re.compile(
    r"\b(?:cut-?off|knowledge|training|since|released?|until|before|after|effective|version|v\d|deprecated|expires?|"
    r"example|e\.g|i\.e|such as|format(?:ted)?|like|founded|born|copyright|policy|deadline|last updated|api|"
    r"beispiel|z\.\s?b|seit|bis|vor|nach|gültig)\b"
    r"|©|例如|例：|例:|比如|格式|截止|截至|形式|以降|以来|まで",
    re.IGNORECASE,
)
_DIALOGUE: Final = re.compile(r"^[ \t]{0,8}(?:assistant|agent|ai|bot|model)[ \t]{0,4}:", re.IGNORECASE | re.MULTILINE)


def spots(text: str) -> list[Spot]:
    """The literals in `text` that change or may, in order, none over another. O(length)."""
    found = sorted(_candidates(text), key=lambda spot: (spot.start, -spot.certainty, -spot.end))
    kept: list[Spot] = []
    for spot in found:
        if kept and spot.start < kept[-1].end:
            if _outweighs(spot, kept[-1]):
                kept[-1] = spot
            continue
        kept.append(spot)
    return kept


def _outweighs(spot: Spot, other: Spot) -> bool:
    """Whether, of two that overlap, the later is the better reading: it is surer, and no piece of the other."""
    return spot.certainty > other.certainty and spot.end >= other.end


def _candidates(text: str) -> Iterator[Spot]:
    for trigger, (forms, named_values) in _BY_TRIGGER.items():
        for start, end in trigger.windows(text):
            for form in forms:
                for match in form.pattern.finditer(text, start, end):
                    yield _judged(text, match, form)
            for named in named_values:
                for match in named.pattern.finditer(text, start, end):
                    yield Spot(match.start("value"), match.end("value"), named.cause, named.volatility, Certainty.CUED)
    yield from _counters(text)
    yield from _users_by_label(text)


def _judged(text: str, match: re.Match[str], form: Form) -> Spot:
    start, end = match.span()
    earliest = max(start - _CUE_CHARS, 0)
    before = text[max(text.rfind("\n", earliest, start) + 1, earliest) : start]
    return Spot(start, end, form.cause, form.volatility, _certainty(before, form))


def _certainty(before: str, form: Form) -> Certainty:
    """What the words before a literal say of it: the last that says anything decides."""
    if before.endswith("`"):
        return Certainty.STATIC
    now = _last(_NOW if form.is_time else form.cue, before)
    static = _last(_STATIC, before)
    if static > now:
        return Certainty.STATIC
    if now:
        return Certainty.CUED
    if form.is_time and _LABEL.search(before):
        return Certainty.LIKELY
    return Certainty.STATIC if form.is_time and before.endswith(_QUOTED) else form.alone


def _last(pattern: re.Pattern[str] | None, text: str) -> int:
    """How many characters stand up to the end of the last match: 0 where there is none, since none is empty."""
    return 0 if pattern is None else max((match.end() for match in pattern.finditer(text)), default=0)


def _counters(text: str) -> Iterator[Spot]:
    """`request #123`, `Step 7 of 10`. Where a word counts through several numbers, it is a list that stands there."""
    counted = [(match[kind].lower(), match.span(value)) for match, kind, value in _counted(text)]
    numbers: dict[str, set[str]] = {}
    for what, (start, end) in counted:
        numbers.setdefault(what, set()).add(text[start:end])
    for what, (start, end) in counted:
        certainty = Certainty.CUED if len(numbers[what]) == 1 else Certainty.STATIC
        yield Spot(start, end, Cause.COUNTER, Volatility.PER_REQUEST, certainty)


def _counted(text: str) -> Iterator[tuple[re.Match[str], str, str]]:
    for start, end in NUMBERS.windows(text):
        for match in COUNTERS.finditer(text, start, end):
            yield (match, "what", "value") if match["what"] else (match, "left", "rest")


_USER_LINE: Final = re.compile(
    r"^[ \t>*-]{0,8}(?:[Uu]ser|[Cc]ustomer|[Cc]lient|Benutzer|Kunde|用户|ユーザー?)[ \t]{0,4}[:：][ \t]{0,4}"
    r"(?P<value>[A-Z][\w.'’-]{0,40}(?: [A-Z][\w.'’-]{0,40}){1,2}|[a-z][a-z._-]{0,30}\d{1,9})[ \t]{0,8}$",
    re.MULTILINE,
)


def _users_by_label(text: str) -> Iterator[Spot]:
    """A line `user: Ada Byron`; where an assistant answers in the same way, it is a dialogue and not a name."""
    matches = list(_USER_LINE.finditer(text))
    if not matches:
        return
    certainty = Certainty.STATIC if len(matches) > 1 or _DIALOGUE.search(text) else Certainty.LIKELY
    for match in matches:
        yield Spot(match.start("value"), match.end("value"), Cause.USER, Volatility.PER_SESSION, certainty)
