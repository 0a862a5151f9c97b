"""What an address is like before it has a load: how many words make a token, how fast it is for one alone.

    two prompts, short and long       tokens = fixed + per word × words
    prompts of several lengths        TTFT(n) = base + n / rate + quad × n²        the longest twice the usual one
    one answer                        ITL of one alone

All texts are new, so that nothing of them is cached. By the second a prefill's own time is known later, whatever
waited before it; the base holds HTTP and one step of the engine too, so of prompts of a few tokens it is too much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from backends.least_squares import NO_SUMS, minimum, plus
from backends.perf import PerfModel
from gateway.measuring.asking import Asker
from gateway.measuring.errors import AddressRefuses
from gateway.measuring.types import Seen
from gateway.measuring.wording import Rate, Wording
from gateway.sim.types import SimRequest
from prefix_index import Chain

_WORDS: Final = (60, 360)
_ROUNDS: Final = 2
_PARTS: Final = (0.25, 0.5, 1.0, 2.0)
_SHORTEST: Final = 32
_ANSWER_TOKENS: Final = 48
_SCALE: Final = (1e-2, 1e-4, 1e-8)
"""Of base, seconds a token, seconds a pair: the sums are solved near 1."""
_FLOORS: Final = (1e-4, 1e-5, 0.0)


@dataclass(frozen=True, slots=True)
class Address:
    """What was found out. `speed` is None where the address tells no prompt tokens, `itl_s` where one piece came."""

    wording: Wording
    speed: PerfModel | None
    ttft_s: float
    itl_s: float | None
    reports_cached: bool
    notes: tuple[str, ...]


async def probe(asker: Asker, wording: Wording, prompt_tokens: int, seed: int) -> Address:
    """Ask a dozen requests, one after the other. Raises `AddressRefuses` where the first is not answered."""
    notes: list[str] = []
    first = await _alone(asker, wording, f"{seed} first", _WORDS[0], 2)
    if not first.whole and wording.ignore_eos and asker.why is not None and asker.why.startswith("status 4"):
        refusal = asker.why
        wording = replace(wording, ignore_eos=False)
        first = await _alone(asker, wording, f"{seed} again", _WORDS[0], 2)
        if first.whole:
            notes.append(f"answers may end before the length asked for: ignore_eos is refused ({refusal[:80]})")
    if not first.whole:
        raise AddressRefuses(asker.address.url, asker.why or "no answer")
    second = await _alone(asker, wording, f"{seed} second", _WORDS[1], 2)
    wording = replace(wording, rate=_rate(first, second))
    if first.prompt_tokens is None:
        notes.append("usage is not told: a word is taken for a token, a piece of text for one of an answer")
    longest = await _lengths(asker, wording, prompt_tokens, seed)
    answer = await _alone(asker, wording, f"{seed} answer", wording.rate.words(prompt_tokens), _ANSWER_TOKENS)
    if not answer.whole:
        raise AddressRefuses(asker.address.url, asker.why or "no answer")
    return Address(
        wording=wording,
        speed=_speed([one for one in [first, second, *longest] if one.whole]),
        ttft_s=answer.first_s or 0.0,
        itl_s=answer.itl_s,
        reports_cached=any(one.cached_tokens is not None for one in (first, second, answer)),
        notes=tuple(notes),
    )


async def _lengths(asker: Asker, wording: Wording, prompt_tokens: int, seed: int) -> list[Seen]:
    """Prompts too long for the address are refused, and left out."""
    sizes = sorted({max(round(prompt_tokens * part), _SHORTEST) for part in _PARTS})
    return [
        await _alone(asker, wording, f"{seed} {turn} {size}", wording.rate.words(size), 1)
        for size in sizes
        for turn in range(_ROUNDS)
    ]


async def _alone(asker: Asker, wording: Wording, name: str, words: int, output_tokens: int) -> Seen:
    request = SimRequest(0, 0.0, Chain(b"", 1, max(words, 1)), output_tokens)
    text = replace(wording, rate=Rate()).text(request, name)
    return await asker.ask(wording.body_of(text, output_tokens), asker.clock())


def _rate(first: Seen, second: Seen) -> Rate:
    if first.prompt_tokens is None or second.prompt_tokens is None:
        return Rate()
    per_word = (second.prompt_tokens - first.prompt_tokens) / (_WORDS[1] - _WORDS[0])
    if per_word <= 0:
        return Rate()
    return Rate(per_word, max(first.prompt_tokens - per_word * _WORDS[0], 0.0))


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
        f, g, h = features
        sums = plus(sums, (f * f, f * g, f * h, g * g, g * h, h * h, f, g, h), 1.0)
    base, linear, square = (found * scale for found, scale in zip(minimum(sums, _FLOORS), _SCALE, strict=True))
    return PerfModel(base_s=base, prefill_tokens_per_s=1 / linear, quad_s_per_token2=square)
