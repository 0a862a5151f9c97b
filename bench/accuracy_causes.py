"""Expected against reported cached tokens: sums, and for each miss what can be told of its cause. Pure.

error = sum of |expected - reported| / sum of prompt tokens

expected > reported    evicted    it was there, and went before the request's turn came
expected < reported    alongside  another request computed the same prefix while this one was decided or waited
                       doubted    it was known to lie there, and thought to be gone by now
                       unknown    the index had not heard of it
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.mortal_fleet.types import Seen


class Cause(StrEnum):
    """Why an expectation was missed."""

    EVICTED = "evicted"
    ALONGSIDE = "alongside"
    DOUBTED = "doubted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Miss:
    """A request whose expectation was not what was reported, tokens. `alongside` counts requests that were under way at
    its engine while it was; `supposed_tokens` is what the decision reckoned with on average (None: not known)."""

    seen: Seen
    expected_tokens: int
    reported_tokens: int
    cause: Cause
    alongside: int
    supposed_tokens: float | None

    def row(self, epoch_s: float) -> dict[str, object]:
        """For the result file; times in seconds from `epoch_s`."""
        seen = self.seen
        return {
            "request": seen.name,
            "turn": seen.turn,
            "endpoint": seen.endpoint,
            "prompt_tokens": seen.usage.prompt_tokens,
            "expected_tokens": self.expected_tokens,
            "reported_tokens": self.reported_tokens,
            "supposed_tokens": self.supposed_tokens,
            "cause": self.cause.value,
            "alongside": self.alongside,
            "started_s": round(seen.started_s - epoch_s, 2),
            "took_s": round(seen.ended_s - seen.started_s, 2),
        }


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Sums over requests, in tokens."""

    requests: int
    prompt_tokens: int
    expected_tokens: int
    reported_tokens: int
    too_many_tokens: int
    too_few_tokens: int

    @property
    def error_percent(self) -> float:
        """Mean absolute error, in percent of the prompt tokens; 0 of nothing."""
        return 100 * (self.too_many_tokens + self.too_few_tokens) / max(self.prompt_tokens, 1)

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that the engines had cached; 0 of nothing."""
        return self.reported_tokens / max(self.prompt_tokens, 1)


def accuracy_of(answers: Sequence[Seen]) -> Accuracy:
    """The sums over answers that have both figures; the others are left out. O(answers)."""
    told = [(one.usage.prompt_tokens, one.expected_tokens, one.usage.cached_tokens) for one in answers]
    known = [(prompt, said, was) for prompt, said, was in told if None not in (prompt, said, was)]
    triples = [(prompt or 0, said or 0, was or 0) for prompt, said, was in known]
    return Accuracy(
        requests=len(triples),
        prompt_tokens=sum(prompt for prompt, _, _ in triples),
        expected_tokens=sum(said for _, said, _ in triples),
        reported_tokens=sum(was for _, _, was in triples),
        too_many_tokens=sum(max(said - was, 0) for _, said, was in triples),
        too_few_tokens=sum(max(was - said, 0) for _, said, was in triples),
    )


def misses_of(answers: Sequence[Seen], heads: Mapping[str, str], supposed: Mapping[str, float]) -> list[Miss]:
    """Every miss, the largest first. O(misses × answers).

    `heads` names for each conversation what it begins with, so that two of one head share a prefix; `supposed` is by
    request id.
    """
    found: list[Miss] = []
    for one in answers:
        error, reported = one.error_tokens, one.usage.cached_tokens
        if not error or reported is None:
            continue
        others = [other for other in answers if _is_alongside(one, other)]
        assumed = supposed.get(one.request_id or "")
        cause = _cause(one, error, [other for other in others if _share(one, other, heads)], assumed)
        found.append(Miss(one, reported + error, reported, cause, len(others), assumed))
    return sorted(found, key=lambda miss: -abs(miss.expected_tokens - miss.reported_tokens))


def _cause(one: Seen, error_tokens: int, kin: Sequence[Seen], supposed_tokens: float | None) -> Cause:
    if error_tokens > 0:
        return Cause.EVICTED
    if kin:
        return Cause.ALONGSIDE
    is_known = supposed_tokens is not None and supposed_tokens > (one.expected_tokens or 0)
    return Cause.DOUBTED if is_known else Cause.UNKNOWN


def _is_alongside(one: Seen, other: Seen) -> bool:
    return (
        other is not one
        and other.endpoint == one.endpoint
        and other.started_s < one.ended_s
        and other.ended_s > one.started_s
    )


def _share(one: Seen, other: Seen, heads: Mapping[str, str]) -> bool:
    return one.conversation == other.conversation or heads[one.conversation] == heads[other.conversation]
