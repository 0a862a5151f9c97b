"""From what an engine said to what it meant: one normaliser for every shape, every route and every stream.

    report, report, ... --merge--> one report --read by its convention--> Usage --check--> UsageReport
    (chunks of a stream)   larger count wins;    told by the keys in it       contradictions go in
                           never added                                        the tenant's favour

    convention   prompt                                        cached
    openai       prompt_tokens                                 prompt_tokens_details.cached_tokens, inside
    responses    input_tokens                                  input_tokens_details.cached_tokens, inside
    anthropic    input_tokens + cache read + cache creation    cache_read_input_tokens, outside
    deepseek     prompt_tokens = hit + miss                    prompt_cache_hit_tokens, inside

Chunks are merged before they are read, so a plain answer and a stream take one path. Counts in a stream are
cumulative: of two, the larger is the later. A count that is null stays unknown; unknown is never 0.
Nothing an engine sends can raise: what is no count is taken as unknown and flagged.
"""

import json
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from billing.types import Usage, UsageFlag, UsageReport

LARGEST_COUNT = (1 << 31) - 1
"""No request has more tokens; a larger count is taken for a fault."""

MOST_RAW_BYTES = 16 * 1024
"""An engine's report longer than this is read, but not kept."""

MOST_WORD_CHARS = 64
"""A text in a report is kept where it is a word no longer than this, such as the name of a tier."""

TEXT = "<text>"
"""Stands for what is no word, which might be a prompt's or an answer's."""

MOST_DEPTH = 4
"""Details of details of chunks are merged to this depth; below it the later ones replace the earlier."""

_ANTHROPIC_KEYS = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"})
_DEEPSEEK_KEYS = frozenset({"prompt_cache_hit_tokens", "prompt_cache_miss_tokens"})
_COUNTED_KEYS = (
    _ANTHROPIC_KEYS
    | _DEEPSEEK_KEYS
    | {
        "prompt_tokens",
        "input_tokens",
        "completion_tokens",
        "output_tokens",
    }
)
_NONE: frozenset[UsageFlag] = frozenset()
_CLAMPED = frozenset({UsageFlag.CLAMPED})
_encode = msgspec.json.Encoder().encode


class UsageMerger:
    """Collects the usage reports of one answer. `add` costs microseconds: an engine may report in every chunk."""

    def __init__(self) -> None:
        self._merged: dict[str, object] = {}
        self._report: UsageReport | None = None

    @property
    def seen(self) -> bool:
        """Whether the engine reported anything that is a usage."""
        return not _COUNTED_KEYS.isdisjoint(self._merged)

    def add(self, raw: dict[str, object]) -> None:
        """Take one report; it may repeat, complete or exceed those before it."""
        if self._merged:
            _merge(self._merged, raw)
        else:
            self._merged = dict(raw)
        self._report = None

    def result(self) -> UsageReport:
        """The usage so far; `usage` is None where the engine reported none. May be called at any time."""
        if self._report is None:
            self._report = normalised(self._merged) if self.seen else UsageReport()
        return self._report


def normalised(raw: dict[str, object]) -> UsageReport:
    """Read one whole report, whatever its convention, and check it. Never raises."""
    reader = _Reader(raw)
    if "prompt_tokens" not in raw and not _ANTHROPIC_KEYS.isdisjoint(raw):
        convention, usage = "anthropic", _anthropic(reader)
    elif not _DEEPSEEK_KEYS.isdisjoint(raw):
        convention, usage = "deepseek", _deepseek(reader)
    elif "prompt_tokens" not in raw and ("input_tokens" in raw or "output_tokens" in raw):
        convention, usage = "responses", _inside(reader, "input_tokens", "output_tokens")
    else:
        convention, usage = "openai", _inside(reader, "prompt_tokens", "completion_tokens")
    usage = _fit_to_total(reader, usage)
    usage, flags = checked(usage)
    return UsageReport(usage, _as_json(raw), convention, flags | reader.flags if reader.flags else flags)


def checked(usage: Usage) -> tuple[Usage, frozenset[UsageFlag]]:
    """Make usage consistent, and say what had to be done: parts fit into their whole, nothing is negative.

    After it: 0 <= cached + cache_write <= prompt where these are known, reasoning <= output. Idempotent.
    """
    cached, written, reasoning = usage.cached_tokens or 0, usage.cache_write_tokens or 0, usage.reasoning_tokens or 0
    prompt, output = usage.prompt_tokens, usage.output_tokens
    fits = (prompt is None or prompt >= cached + written) and (output is None or output >= reasoning)
    if fits and cached >= 0 and written >= 0 and reasoning >= 0:
        return usage, _NONE
    return _fitting(usage), _CLAMPED


def _fitting(usage: Usage) -> Usage:
    prompt, output = _not_negative(usage.prompt_tokens), _not_negative(usage.output_tokens)
    cached = _at_most(_not_negative(usage.cached_tokens), prompt)
    uncached = None if prompt is None else prompt - (cached or 0)
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        cache_write_tokens=_at_most(_not_negative(usage.cache_write_tokens), uncached),
        reasoning_tokens=_at_most(_not_negative(usage.reasoning_tokens), output),
    )


class _Reader:
    """Reads counts out of a report and remembers what was wrong with them."""

    def __init__(self, raw: dict[str, object]) -> None:
        self._raw = raw
        self.flags: set[UsageFlag] = set()

    def count(self, key: str) -> int | None:
        """The count of a key; None where it is absent, null, or no count."""
        return self._as_count(self._raw.get(key))

    def detail(self, key: str, inner: str) -> int | None:
        """The count of a key of an object inside the report."""
        details = self._raw.get(key)
        return self._as_count(details.get(inner)) if isinstance(details, dict) else None

    def _as_count(self, value: object) -> int | None:
        if value is None:
            return None
        # A bool is an int to isinstance; a report of `true` tokens is a fault.
        if type(value) is not int or value > LARGEST_COUNT:
            self.flags.add(UsageFlag.INVALID)
            return None
        if value < 0:
            self.flags.add(UsageFlag.CLAMPED)
            return 0
        return value

    def agreed(self, one: int | None, other: int | None) -> int | None:
        """Two counts of the same thing: the smaller where they differ."""
        if one is None or other is None:
            return other if one is None else one
        if one != other:
            self.flags.add(UsageFlag.CLAMPED)
        return min(one, other)


def _inside(reader: _Reader, prompt_key: str, output_key: str) -> Usage:
    """OpenAI's way: cached tokens are part of the prompt. Some servers put the detail beside the total; vLLM has a name
    of its own for what was written, the count that it reports to Anthropic clients as cache creation."""
    details, output_details = f"{prompt_key}_details", f"{output_key}_details"
    cached, written = reader.detail(details, "cached_tokens"), reader.detail(details, "cache_write_tokens")
    created = reader.detail(details, "created_cache_tokens")
    reasoning = reader.detail(output_details, "reasoning_tokens")
    return Usage(
        prompt_tokens=reader.count(prompt_key),
        cached_tokens=reader.count("cached_tokens") if cached is None else cached,
        output_tokens=reader.count(output_key),
        cache_write_tokens=created if written is None else written,
        reasoning_tokens=reader.count("reasoning_tokens") if reasoning is None else reasoning,
    )


def _deepseek(reader: _Reader) -> Usage:
    """Hit and miss are the two parts of the prompt."""
    hit, miss = reader.count("prompt_cache_hit_tokens"), reader.count("prompt_cache_miss_tokens")
    parts = None if hit is None or miss is None else hit + miss
    usage = _inside(reader, "prompt_tokens", "completion_tokens")
    return replace(usage, prompt_tokens=reader.agreed(usage.prompt_tokens, parts), cached_tokens=hit)


def _anthropic(reader: _Reader) -> Usage:
    """Input, cache read and cache creation are three disjoint counts; the prompt is their sum."""
    fresh, read = reader.count("input_tokens"), reader.count("cache_read_input_tokens")
    lifetimes = [reader.detail("cache_creation", f"ephemeral_{kept}_input_tokens") for kept in ("5m", "1h")]
    by_lifetime = None if lifetimes == [None, None] else sum(count or 0 for count in lifetimes)
    written = reader.agreed(reader.count("cache_creation_input_tokens"), by_lifetime)
    return Usage(
        prompt_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        cached_tokens=read,
        output_tokens=reader.count("output_tokens"),
        cache_write_tokens=written,
        reasoning_tokens=reader.detail("output_tokens_details", "thinking_tokens"),
    )


def _fit_to_total(reader: _Reader, usage: Usage) -> Usage:
    """Hold prompt + output against the total: it completes an absent output, and cuts what exceeds it."""
    total, prompt, output = reader.count("total_tokens"), usage.prompt_tokens, usage.output_tokens
    if total is None or prompt is None:
        return usage
    if output is None:
        return replace(
            usage, output_tokens=max(0, total - prompt), prompt_tokens=reader.agreed(prompt, min(prompt, total))
        )
    excess = prompt + output - total
    if excess:
        reader.flags.add(UsageFlag.CLAMPED)
    if excess <= 0:
        return usage
    return replace(usage, output_tokens=max(0, output - excess), prompt_tokens=min(prompt, total))


def _merge(merged: dict[str, object], raw: dict[str, object], depth: int = MOST_DEPTH) -> None:
    for key, value in raw.items():
        known = merged.get(key)
        if isinstance(value, dict) and depth > 1:
            inner = dict(known) if isinstance(known, dict) else {}
            _merge(inner, value, depth - 1)
            merged[key] = inner
        elif known is None or _supersedes(value, known):
            merged[key] = value


def _supersedes(value: object, known: object) -> bool:
    """Whether a later value replaces a known one: the larger count does, a count replaces what is none."""
    if value is None:
        return False
    if type(value) is not int:
        return type(known) is not int
    return type(known) is not int or value > known


def _not_negative(count: int | None) -> int | None:
    return None if count is None else max(0, count)


def _at_most(count: int | None, bound: int | None) -> int | None:
    return count if count is None or bound is None else min(count, bound)


def _as_json(raw: dict[str, object]) -> bytes | None:
    """The report as evidence, without texts; None where it is too long, or nothing that JSON could say."""
    try:
        text = _encoded(_without_texts(raw))
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= MOST_RAW_BYTES else None


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except OverflowError:  # an integer of more than 64 bits is no count, and evidence all the same
        return json.dumps(value, separators=(",", ":")).encode()


def _without_texts(value: object) -> object:
    """Counts and words as they are: a report is no place for what was asked or answered, and the ledger none either."""
    if isinstance(value, dict):
        return {_word(key): _without_texts(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return _word(value)
    return [_without_texts(inner) for inner in value] if isinstance(value, list) else value


def _word(text: str) -> str:
    return text if len(text) <= MOST_WORD_CHARS and _is_word(text) else TEXT


@lru_cache(maxsize=1024)
def _is_word(text: str) -> bool:
    return text.isascii() and text.replace("-", "_").replace(".", "_").isidentifier()
