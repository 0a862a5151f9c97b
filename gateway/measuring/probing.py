"""What an address is like before it has a load: how many tokens a word makes, how fast prompts are computed alone.

    two prompts, short and long       tokens = fixed + per word × words
    prompts of several lengths        TTFT(n) = base + n / rate + quad × n²        the longest twice the usual one
    one answer                        whether a prompt of the usual length is answered at all

Each has a deadline, since an answer may have no end. All texts are new, so that nothing of them is cached. By the
second a prefill's own time is known later, whatever waited before it; the base holds HTTP and one step of the engine
too, so of prompts of a few tokens it is too much.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

from backends.least_squares import NO_SUMS, minimum, of_sample, plus
from backends.perf import PerfModel
from gateway.measuring.asking import Asker, PrefillSeconds
from gateway.measuring.errors import AddressRefuses
from gateway.measuring.types import Seen
from gateway.measuring.wording import Wording, WordTokens
from gateway.sim.types import SimRequest
from prefix_index import Chain

_WORDS: Final = (60, 360)
"""Of two prompts far enough apart that a token of a template is little."""
_ROUNDS: Final = 2
_PARTS: Final = (0.25, 0.5, 1.0, 2.0)
"""Of the usual prompt: lengths that are timed, each in every round."""
_SHORTEST_TOKENS: Final = 32
_SHORT_ANSWER_TOKENS: Final = 2
_ANSWER_TOKENS: Final = 48
_TOLD_CHARS: Final = 80
_PATIENCE_S: Final = 900.0
"""With one request: to its first byte `asking` waits 600."""
_UNKNOWN_FIELD: Final = frozenset((400, 422))
"""What a server answers that does not know a field of a body."""
_LIKELY_PER_WORD: Final = (0.1, 20.0)
"""Tokens of a word of four letters; what lies beyond is no count of them."""
_SCALE: Final = (1e-2, 1e-4, 1e-8)
"""Of base, seconds a token, seconds a pair: the sums are solved near 1."""
_FLOORS: Final = (1e-4, 1e-5, 0.0)
"""On that scale: 1 µs, a thousand million tokens a second, and no pairs."""


@dataclass(frozen=True, slots=True)
class Address:
    """What was found out. `speed` is None where the address tells no prompt tokens; `speeds` are those of endpoints
    that answers name, as far as enough of these were of one."""

    wording: Wording
    speed: PerfModel | None
    speeds: Mapping[str, PerfModel]
    notes: tuple[str, ...]

    @property
    def prefill_s(self) -> PrefillSeconds | None:
        """By an endpoint's own speed, else by that of all together."""
        speed, speeds = self.speed, self.speeds
        if speed is None:
            return None
        return lambda endpoint, uncached, tokens: speeds.get(endpoint, speed).prefill_s(uncached, tokens)


async def probe(asker: Asker, wording: Wording, prompt_tokens: int) -> Address:
    """Ask a dozen requests, one after the other. Raises `AddressRefuses` where the first is not answered, or one of
    the usual length."""
    seed = token_hex(8)  # not that of the load, whose texts an engine may know from a run before
    first, wording, notes = await _first(asker, wording, seed)
    second = await _alone(asker, wording, f"{seed} second", _WORDS[1], _SHORT_ANSWER_TOKENS)
    counted = _word_tokens(first, second)
    wording = replace(wording, word_tokens=counted or WordTokens())
    if first.prompt_tokens is None:
        notes.append("usage is not told: a word is taken for a token, a piece of text for one of an answer")
    elif second.prompt_tokens is not None and counted is None:
        notes.append(
            f"prompts of {_WORDS[0]} and {_WORDS[1]} words are told to have {first.prompt_tokens:,} and "
            f"{second.prompt_tokens:,} tokens, which cannot be: a word is taken for a token"
        )
    longer = await _lengths(asker, wording, prompt_tokens, seed)
    answer = await _alone(asker, wording, f"{seed} answer", wording.word_tokens.words(prompt_tokens), _ANSWER_TOKENS)
    if not answer.is_whole:
        raise AddressRefuses(asker.address.url, asker.why or "no answer")
    whole = [one for one in [first, second, *longer] if one.is_whole]
    of_each = {name: _speed([one for one in whole if one.endpoint == name]) for name in {one.endpoint for one in whole}}
    known = {name: speed for name, speed in of_each.items() if speed is not None}
    return Address(wording, _speed(whole), known, tuple(notes))


async def _first(asker: Asker, wording: Wording, seed: str) -> tuple[Seen, Wording, list[str]]:
    """The first answer, how to ask for the others, and what to know of that."""
    first = await _alone(asker, wording, f"{seed} first", _WORDS[0], _SHORT_ANSWER_TOKENS)
    notes: list[str] = []
    if not first.is_whole and wording.ignore_eos and asker.status in _UNKNOWN_FIELD:
        refusal = asker.why or ""
        wording = replace(wording, ignore_eos=False)
        first = await _alone(asker, wording, f"{seed} again", _WORDS[0], _SHORT_ANSWER_TOKENS)
        notes.append(f"answers may end before the length asked for: ignore_eos is refused ({refusal[:_TOLD_CHARS]})")
    if not first.is_whole:
        raise AddressRefuses(asker.address.url, asker.why or "no answer")
    return first, wording, notes


async def _lengths(asker: Asker, wording: Wording, prompt_tokens: int, seed: str) -> list[Seen]:
    """Prompts too long for the address are refused, and left out."""
    sizes = sorted({max(round(prompt_tokens * part), _SHORTEST_TOKENS) for part in _PARTS})
    return [
        await _alone(asker, wording, f"{seed} {turn} {size}", wording.word_tokens.words(size), 1)
        for size in sizes
        for turn in range(_ROUNDS)
    ]


async def _alone(asker: Asker, wording: Wording, name: str, words: int, output_tokens: int) -> Seen:
    request = SimRequest(0, 0.0, Chain(b"", 1, max(words, 1)), output_tokens)
    text = replace(wording, word_tokens=WordTokens()).text(request, name)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await asker.ask(wording.body_of(text, output_tokens), asker.clock())
    except TimeoutError:
        raise AddressRefuses(
            asker.address.url, f"a lone answer of {output_tokens} tokens had no end after {_PATIENCE_S:g} s"
        ) from None


def _word_tokens(first: Seen, second: Seen) -> WordTokens | None:
    """By the line through both; None where they do not tell, or tell what cannot be."""
    if first.prompt_tokens is None or second.prompt_tokens is None:
        return None
    per_word = (second.prompt_tokens - first.prompt_tokens) / (_WORDS[1] - _WORDS[0])
    if not _LIKELY_PER_WORD[0] <= per_word <= _LIKELY_PER_WORD[1]:
        return None
    return WordTokens(per_word, max(first.prompt_tokens - per_word * _WORDS[0], 0.0))


def _speed(seen: Sequence[Seen]) -> PerfModel | None:
    """Base, rate and quadratic term by relative least squares, none negative; None of fewer than three lengths."""
    known = [
        (float(one.prompt_tokens - (one.cached_tokens or 0)), float(one.prompt_tokens), one.first_s)
        for one in seen
        if one.prompt_tokens is not None and one.first_s
    ]
    if len({tokens for tokens, _, _ in known}) < len(_SCALE):
        return None
    sums = NO_SUMS
    for fresh, tokens, seconds in known:
        features = (_SCALE[0] / seconds, _SCALE[1] * fresh / seconds, _SCALE[2] * fresh * tokens / seconds)
        sums = plus(sums, of_sample(features), 1.0)
    base_s, token_s, pair_s = (found * scale for found, scale in zip(minimum(sums, _FLOORS), _SCALE, strict=True))
    return PerfModel(base_s=base_s, prefill_tokens_per_s=1 / token_s, quad_s_per_token2=pair_s)
