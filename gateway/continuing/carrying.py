"""What a request carries from the attempts that died to the one that goes on, and what that makes of the bill.

    first     prompt 1,000 (cached 960)    relayed 200 tokens, died
    second    prompt 1,200 (cached 0)      output 100
    billed    prompt 1,000 (cached 960)    output 300         the client has 300 tokens of an answer to 1,000
    not       the 1,200 that were computed once more: the operator's, on the attempt's row and in a metric

The first endpoint had no chance to report, so its cached tokens are those that were expected, as in any cut stream,
and the tokens relayed are counted here: the row is flagged as estimated. Where the client had got no text, nothing was
computed twice for it, and the second report stands as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from billing import Attempt, Settlement, Usage, UsageFlag, UsageMerger
from gateway.continuing.joining import ContinuedStream, FailuresHeld, Joined, mark
from gateway.continuing.types import Said
from gateway.edge.translation import AnswerTranslator
from gateway.relay import StreamTee
from gateway.translated import WholeChatEvents
from gateway.types import InferenceRequest


@dataclass(frozen=True, slots=True)
class Carried:
    """What the attempts before have come to.

    `number` counts the continuations so far. `request` is the client's own. `tee` is that of the attempt that died
    last. `prompt_tokens` and the expected `cached_tokens` are of the first attempt, None where not known;
    `relayed_tokens` are those of all the text that the client has. `translator` has read it, where it is translated;
    `head_sent`: the client has got something, so that the rest must go with it.
    """

    number: int
    request: InferenceRequest
    said: Said
    tee: StreamTee
    prompt_tokens: int | None
    cached_tokens: int | None
    relayed_tokens: int
    translator: AnswerTranslator | None
    head_sent: bool

    def outlet(self, *, keep_usage: bool) -> ContinuedStream:
        """What the answer that goes on passes through."""
        tee = StreamTee(FailuresHeld() if self.translator is None else WholeChatEvents(), keep_usage=keep_usage)
        head = mark(self.number) if self.head_sent else b""
        return ContinuedStream(tee, Joined(self.said, self.composed_json), self.translator, head)

    def composed(self, usage: Usage | None) -> Usage:
        """The usage of all of the answer, `usage` being what the attempt that went on says of itself. What that wrote
        and nobody counted is not in it."""
        prompt, output = self.prompt_tokens, self.relayed_tokens
        later = None if usage is None else usage.output_tokens
        if prompt is None and usage is not None and usage.prompt_tokens is not None:
            prompt = max(usage.prompt_tokens - self.relayed_tokens, 0)
        cached = self.cached_tokens
        if cached is not None and prompt is not None:
            cached = min(cached, prompt)
        return Usage(prompt, cached, output + (later or 0))

    def composed_json(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """The usage event of the attempt that went on, with the counts of all of the answer."""
        if not self.said.text:
            return dict(told)
        report = UsageMerger()  # reads what an engine tells as the bill does
        report.add(dict(told))
        usage = self.composed(report.result().usage)
        sums = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.output_tokens}
        if usage.prompt_tokens is not None and usage.output_tokens is not None:
            sums["total_tokens"] = usage.prompt_tokens + usage.output_tokens
        details = told.get("prompt_tokens_details")
        if isinstance(details, dict) or usage.cached_tokens is not None:
            sums_of_prompt: dict[str, Any] = {"cached_tokens": usage.cached_tokens}
            return {**told, **sums, "prompt_tokens_details": sums_of_prompt}
        return {**told, **sums}

    def settled(self, settlement: Settlement, tee: object) -> Settlement:
        """The settlement of all of the answer; `settlement` is that of the last attempt alone, whose tee is `tee`."""
        began = tee is not self.tee
        attempts = _with_tokens(settlement.attempts, settlement.usage) if began else settlement.attempts
        settlement = replace(settlement, attempts=attempts, continuations=self.number)
        if not self.said.text:
            return settlement
        usage = self.composed(settlement.usage if began else Usage(None, None, 0))
        counted = not began or (settlement.usage is not None and settlement.usage.output_tokens is not None)
        flags = settlement.flags | {UsageFlag.ESTIMATED} | (frozenset() if counted else {UsageFlag.INCOMPLETE})
        return replace(
            settlement,
            usage=usage,
            flags=flags,
            expected_cached_tokens=self.cached_tokens,
            verdict=None,
            miss_reason=None,
            changed_segment=None,
            lost_tokens=None,
        )


def _with_tokens(attempts: tuple[Attempt, ...], usage: Usage | None) -> tuple[Attempt, ...]:
    """The attempts, the last with what its engine reported."""
    if usage is None or not attempts:
        return attempts
    told = {"prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens}
    return (*attempts[:-1], replace(attempts[-1], output_tokens=usage.output_tokens, **told))
