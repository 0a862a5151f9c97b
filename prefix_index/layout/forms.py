"""The forms of literals that change: dates and times in four languages, ids, counters, people.

Each form is bounded: no repetition without a limit, none inside another that could match the same text in two ways.

    ... 400 characters of prose ... today, 3 March 2025, we ship ... 400 more ...
                                                   ^^^^ what every date has (a trigger), found at little cost
                             [-- window --------------- window --]  only here are the forms of dates tried

Trying all forms at each character costs 0.7 µs a character; triggers are cheap to search and rare. A window is wide
enough for the longest literal around its trigger, so nothing is cut (a test compares with trying everywhere).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prefix_index.layout.types import Cause, Certainty, Volatility


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a form cannot be without, and how far from it the form may reach, in characters."""

    pattern: re.Pattern[str]
    before: int
    after: int

    def windows(self, text: str) -> Iterator[tuple[int, int]]:
        """Where forms may be, in order, none over another. O(length)."""
        start = end = -1
        for found in self.pattern.finditer(text):
            begin, until = max(found.start() - self.before, 0), found.end() + self.after
            if begin > end:
                if end >= 0:
                    yield start, end
                start = begin
            end = until
        if end >= 0:
            yield start, end


_YEARS: Final = Trigger(re.compile(r"(?:19|20)\d\d"), 64, 64)
_CJK_YEARS: Final = Trigger(re.compile("年"), 16, 64)
_CLOCKS: Final = Trigger(re.compile(r"\d:[0-5]\d"), 4, 64)
_LONG_NUMBERS: Final = Trigger(re.compile(r"1[5-9]\d{8}"), 4, 32)
_HEX: Final = Trigger(re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}"), 4, 80)
_ULIDS: Final = Trigger(re.compile(r"01[0-9A-HJKMNP-TV-Z]{8}"), 4, 32)
_PREFIXED: Final = Trigger(re.compile(r"[_-][A-Za-z0-9]{8}"), 16, 80)
_ATS: Final = Trigger(re.compile("@"), 68, 340)
_SAYS: Final = r"[\"'`*]{0,3}[ \t]{0,4}(?:[:：=#]|is )"
_IDS: Final = Trigger(re.compile(rf"(?:[iI][dD]|编号){_SAYS}"), 32, 240)
_NAMES: Final = Trigger(re.compile(rf"(?:[mMcC][eE]|[eE][rRdD]|[sS][tT]){_SAYS}"), 32, 240)
_HELPING: Final = Trigger(
    re.compile(
        r"ing (?:(?<=helping )|(?<=assisting )|(?<=talking )|(?<=speaking )|(?<=chatting ))",
    ),
    48,
    280,
)
_DAYS: Final = Trigger(re.compile("[yY] [iI][sS] |e ist |今天是|日は"), 16, 24)
NUMBERS: Final = Trigger(re.compile(r"\d+"), 32, 48)
"""Of counters."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of literal. `alone`: how sure it is without a word before it; `cue`: which words make it sure."""

    cause: Cause
    volatility: Volatility
    alone: Certainty
    near: Trigger
    pattern: re.Pattern[str]
    cue: re.Pattern[str] | None = None

    @property
    def is_time(self) -> bool:
        """Whether words for now are its cue."""
        return self.cause in (Cause.TIME, Cause.DATE, Cause.EPOCH)


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value (`value` in the pattern) that the name before it says changes."""

    cause: Cause
    volatility: Volatility
    near: Trigger
    pattern: re.Pattern[str]


_MONTH: Final = (
    r"(?:Jan(?:uary|uar)?|Feb(?:ruary|ruar)?|Mar(?:ch)?|März|Mrz|Apr(?:il)?|May|Mai|June?|Juni|July?|Juli|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Okt(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Dez(?:ember)?)"
)
_WEEKDAY: Final = (
    r"(?:Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:rs(?:day)?)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?|"
    r"Montag|Dienstag|Mittwoch|Donnerstag|Freitag|Samstag|Sonntag)"
)
_CLOCK: Final = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
_ZONE: Final = r"(?: ?(?:Z|UTC|GMT|CES?T|[ECMP][SD]T|JST|[+-]\d{2}:?\d{2})(?:[+-]\d{1,2})?(?![0-9A-Za-z]))"
_YEAR: Final = r"(?:19|20)\d{2}"
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_AT: Final = rf"(?:,? (?:at |um )?{_CLOCK}(?: ?[AaPp]\.?[Mm]\b\.?| Uhr\b)?{_ZONE}?)"
_START: Final = r"(?<![\w.@/-])"
_END: Final = r"(?![\w@/-])"
_CJK_WEEKDAY: Final = r"(?: ?[(（]?(?:星期|周|週)?[一二三四五六日天月火水木金土](?:曜日)?[)）]?)"

_ISO_DATE: Final = rf"{_YEAR}([-/])(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])"
_ENGLISH_DATE: Final = (
    rf"(?:{_WEEKDAY},? )?(?:{_MONTH}\.? {_DAY}(?:st|nd|rd|th)?,? {_YEAR}"
    rf"|{_DAY}(?:st|nd|rd|th|\.)? (?:of )?{_MONTH}\.?,? {_YEAR})"
)
_CJK_DATE: Final = (
    r"(?:(?:令和|平成) ?(?:元|\d{1,2})|(?:19|20)\d{2}) ?年 ?(?:1[0-2]|0?[1-9]) ?月 ?"
    + rf"{_DAY} ?[日号]{_CJK_WEEKDAY}?"
)
_CJK_CLOCK: Final = r"(?:(?:上午|下午|午前|午後)? ?(?:[01]?\d|2[0-3]) ?[时時点點] ?[0-5]?\d ?分(?: ?[0-5]?\d ?秒)?)"

_ID_CUE: Final = re.compile(
    r"\b(?:ids?|uuid|guid|trace|span|request|session|correlation|conversation|run|nonce|hash|token|key)\b[\s\"'`:=#(]{0,6}$"
    r"|(?:编号|標識|标识|ID|番号)[\s:：=\"'`]{0,6}$",
    re.IGNORECASE,
)
_PERSON_CUE: Final = re.compile(
    r"\b(?:user|customer|client|account|member|caller|signed in as|logged in as|on behalf of|helping|assisting|"
    r"benutzer|kunde)\b"
    r"|用户|客户|ユーザー|お客様",
    re.IGNORECASE,
)


def _time(body: str, alone: Certainty, cause: Cause = Cause.TIME, end: str = _END, near: Trigger = _YEARS) -> Form:
    volatility = Volatility.PER_SESSION if cause is Cause.DATE else Volatility.PER_REQUEST
    return Form(cause, volatility, alone, near, re.compile(f"{_START}(?:{body}){end}"))


FORMS: Final = (
    _time(rf"{_ISO_DATE}[T ]{_CLOCK}{_ZONE}?", Certainty.LIKELY, end=r"(?!\w)"),
    _time(_ISO_DATE, Certainty.STATIC, Cause.DATE),
    _time(rf"{_ENGLISH_DATE}{_AT}", Certainty.LIKELY, end=r"(?!\w)"),
    _time(_ENGLISH_DATE, Certainty.STATIC, Cause.DATE),
    _time(rf"{_WEEKDAY},? {_MONTH} {{1,2}}{_DAY} {_CLOCK}(?: [A-Z]{{2,5}})? {_YEAR}", Certainty.LIKELY),
    _time(rf"{_WEEKDAY}, {_DAY} {_MONTH} {_YEAR} {_CLOCK}{_ZONE}?", Certainty.LIKELY),
    _time(rf"{_DAY}[./](?:1[0-2]|0?[1-9])[./]{_YEAR}{_AT}", Certainty.LIKELY, end=r"(?!\w)"),
    _time(rf"{_DAY}\.(?:1[0-2]|0?[1-9])\.{_YEAR}", Certainty.STATIC, Cause.DATE),
    _time(rf"(?:1[0-2]|0?[1-9])/{_DAY}/{_YEAR}", Certainty.STATIC, Cause.DATE),
    Form(
        Cause.TIME,
        Volatility.PER_REQUEST,
        Certainty.LIKELY,
        _CJK_YEARS,
        re.compile(rf"(?<![\d年]){_CJK_DATE} ?(?:{_CLOCK}|{_CJK_CLOCK})"),
    ),
    Form(Cause.DATE, Volatility.PER_SESSION, Certainty.STATIC, _CJK_YEARS, re.compile(rf"(?<![\d年]){_CJK_DATE}")),
    _time(rf"{_CLOCK}(?: ?[AaPp]\.?[Mm]\b\.?| Uhr\b)?{_ZONE}?", Certainty.STATIC, end=r"(?![\w:])", near=_CLOCKS),
    _time(r"1[5-9]\d{8}\.\d{1,9}", Certainty.LIKELY, Cause.EPOCH, near=_LONG_NUMBERS),
    _time(r"1[5-9]\d{11}(?:\d{3}){0,2}", Certainty.LIKELY, Cause.EPOCH, near=_LONG_NUMBERS),
    _time(r"1[5-9]\d{8}", Certainty.STATIC, Cause.EPOCH, near=_LONG_NUMBERS),
    Form(
        Cause.UUID,
        Volatility.PER_REQUEST,
        Certainty.LIKELY,
        _HEX,
        re.compile(r"(?<![0-9A-Za-z-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z-])"),
        _ID_CUE,
    ),
    Form(
        Cause.HEX_ID,
        Volatility.PER_REQUEST,
        Certainty.LIKELY,
        _HEX,
        re.compile(r"(?<![0-9A-Za-z_-])(?=[a-f]{0,64}\d)(?=\d{0,64}[a-f])[0-9a-f]{32,64}(?![0-9A-Za-z_])"),
        _ID_CUE,
    ),
    Form(
        Cause.HEX_ID,
        Volatility.PER_REQUEST,
        Certainty.STATIC,
        _HEX,
        re.compile(r"(?<![0-9A-Za-z_-])(?=[a-f]{0,32}\d)(?=\d{0,32}[a-f])[0-9a-f]{16,31}(?![0-9A-Za-z_])"),
        _ID_CUE,
    ),
    Form(
        Cause.REQUEST_ID,
        Volatility.PER_REQUEST,
        Certainty.LIKELY,
        _PREFIXED,
        re.compile(
            r"(?<![\w-])(?:req|request|trace|span|run|call|job|msg|txn|corr|chatcmpl|resp)[_-]"
            r"(?=[A-Za-z_-]{0,64}\d)(?=[\d_-]{0,64}[A-Za-z])[A-Za-z0-9]{8,64}(?![\w-])"
        ),
        _ID_CUE,
    ),
    Form(
        Cause.REQUEST_ID,
        Volatility.PER_REQUEST,
        Certainty.LIKELY,
        _ULIDS,
        re.compile(r"(?<!\w)01[0-9A-HJKMNP-TV-Z]{24}(?!\w)"),
        _ID_CUE,
    ),
    Form(
        Cause.SESSION_ID,
        Volatility.PER_SESSION,
        Certainty.LIKELY,
        _PREFIXED,
        re.compile(r"(?<![\w-])(?:sess|session|conv|thread|chat)[_-](?=[A-Za-z]{0,64}\d)[A-Za-z0-9]{8,64}(?![\w-])"),
        _ID_CUE,
    ),
    Form(
        Cause.USER,
        Volatility.PER_SESSION,
        Certainty.STATIC,
        _ATS,
        re.compile(r"(?<![\w.+@-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}(?![\w@-])"),
        _PERSON_CUE,
    ),
)
"""Tried in this order; of two at the same place, the surer and then the longer stays."""

_SAID: Final = r"[\"'`*]{0,3}[ \t]{0,4}(?:[:：=#]|\bis\b)[ \t]{0,4}[\"'`*]{0,3}"
_VALUE: Final = r"(?P<value>(?=[A-Za-z_.:-]{0,64}\d)[\w.:-]{0,127}\w)"


def _named(names: str, cause: Cause, volatility: Volatility, value: str = _VALUE, near: Trigger = _IDS) -> NamedValue:
    return NamedValue(cause, volatility, near, re.compile(rf"(?<![\w-])(?i:{names}){_SAID}{value}"))


NAMED_VALUES: Final = (
    _named(
        r"(?:request|trace|correlation|transaction|run|invocation|message|call|span|job|task)[ _-]?id"
        r"|x-request-id|请求(?:编号|ID)|リクエストID",
        Cause.REQUEST_ID,
        Volatility.PER_REQUEST,
    ),
    _named(
        r"(?:session|conversation|thread|chat)[ _-]?id|会话(?:编号|ID)|セッションID",
        Cause.SESSION_ID,
        Volatility.PER_SESSION,
    ),
    _named(r"nonce|(?:random )?seed|cache[ -_]?bust(?:er)?", Cause.RANDOM, Volatility.PER_REQUEST, near=_NAMES),
    _named(r"(?:user|customer|account|member|client)[ _-]?id|用户ID|ユーザーID", Cause.USER, Volatility.PER_SESSION),
    _named(
        r"(?:user|customer|client|member|caller)(?:'s)?[ _-]?name|current user|logged[ -]in user|benutzername",
        Cause.USER,
        Volatility.PER_SESSION,
        r"(?P<value>[A-Z][\w.'’-]{0,40}(?: [A-Z][\w.'’-]{0,40}){0,3}|[a-z][\w.-]{0,60}\d)(?![\w{<])",
        _NAMES,
    ),
    NamedValue(
        Cause.USER,
        Volatility.PER_SESSION,
        _HELPING,
        re.compile(
            r"\b(?:[Yy]ou are|[Yy]ou're) (?:currently )?(?:helping|assisting|talking (?:to|with)|speaking (?:to|with)|"
            r"chatting with) (?:(?:the )?(?:user|customer) )?"
            r"(?!Users?\b|Customers?\b|People\b|Clients?\b|Developers?\b|The\b|An?\b)"
            r"(?P<value>[A-Z][\w'’-]{0,40}(?: [A-Z][\w'’-]{0,40}){0,3})(?=[.,;:!\n(]| \(|$)"
        ),
    ),
    NamedValue(
        Cause.DATE,
        Volatility.PER_SESSION,
        _DAYS,
        re.compile(rf"\b(?:[tT]oday [iI]s|TODAY IS|[hH]eute ist)(?: a)? (?P<value>{_WEEKDAY})\b"),
    ),
    NamedValue(
        Cause.DATE, Volatility.PER_SESSION, _DAYS, re.compile(r"今天是(?P<value>(?:星期|周|週)[一二三四五六日天])")
    ),
    NamedValue(
        Cause.DATE, Volatility.PER_SESSION, _DAYS, re.compile(r"(?:今日|本日)は(?P<value>[月火水木金土日]曜日)")
    ),
)

COUNTERS: Final = re.compile(
    r"(?<![\w-])(?P<what>(?i:request|call|turn|attempt|message|iteration|round|ticket|query|step))"
    r"(?: ?#| (?:no\.?|number|nr\.?) ?#?|:? #| (?=\d{1,9} ?(?:of|/|von) ?\d))(?P<value>\d{1,12})(?!\w)"
    r"|(?P<rest>\d{1,12}) (?P<left>tokens|steps|turns|requests|attempts|calls|messages) "
    r"(?:remaining|left|so far|used)\b"
)
"""`request #123`, `Step 7 of 10`, `3 attempts left`."""
