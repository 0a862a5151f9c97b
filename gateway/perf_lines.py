"""One prompt at one place, and what is learned there: the lines of the book of speeds (`perf_book.py` says how)."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from backends import PerfModel
from backends.perf_fit import PerfFit, PrefillSample
from gateway.metrics import Counter
from gateway.perf_kinds import is_known
from gateway.scheduling import Decision

SUMMED_PROMPTS: Final = 8
"""Prompts that were not alone are one sample together once they are so many."""
_SUM_WEIGHT: Final = 4.0
"""It counts for so many of prompts that were alone: half of its own, since others were in their way."""
_LEAST_OUTPUT_TOKENS: Final = 4
"""A shorter answer says little of the time between tokens."""
_MOST_UNSEEN: Final = 64
"""Prompts without a first token that are remembered of a line; beyond, the oldest are left out of the next sum."""


@dataclass(slots=True)
class _Sum:
    """Prompts of which only the sum is known."""

    seconds: float = 0.0
    tokens: float = 0.0
    pairs: float = 0.0
    prompts: int = 0


class Prefill:
    """A prompt on its way at an endpoint. Told of its first token, or of its end, it is in nobody's way any more."""

    __slots__ = (
        "_alone",
        "_expected",
        "_learned",
        "_others",
        "_sent_s",
        "_tokens",
        "_waits",
        "line",
        "loading",
        "seconds",
        "unseen",
    )

    def __init__(self, line: "Line", sent_s: float, decision: Decision, others_tokens: float) -> None:
        self.line = line
        self._sent_s = sent_s
        self._tokens = decision.queue_tokens
        self._expected = decision.work_tokens, decision.prompt_tokens
        self._others = _Sum(tokens=others_tokens)
        self._alone = line.waiting == 0 and not others_tokens
        self._waits = True
        self.unseen: Unseen | None = None
        """Where it is known that nobody will see its first token."""
        self.seconds: float | None = None
        """What its computing took, once it is known."""
        self._learned = False
        self.loading: Callable[[float], None] | None = None
        """Where something is loaded before the prompt is computed: who is told what that took. Nothing else is learned
        from it then."""
        line.waiting += 1
        line.waiting_tokens += self._tokens

    def first_token(self, now_s: float) -> None:
        """Its first token is here; what follows changes nothing. Of an endpoint that is hardly known it is learned at
        once, from what was expected to be computed: an answer may take minutes more, and the slower it is, the longer
        would the endpoint be taken for a usual one."""
        if not self._waits:
            return
        self.end()
        line = self.line
        began_s = max(self._sent_s, line.computed_s)
        line.computed_s = now_s
        self.seconds = now_s - began_s
        for unseen in line.unseen:
            if unseen.until_s > began_s:
                self._others.tokens += unseen.tokens
                self._others.pairs += unseen.pairs
                self._others.prompts += 1
        line.unseen.clear()
        self._alone = self._alone and not line.waiting and not self._others.prompts and began_s == self._sent_s
        if self.loading is None and not is_known(line.fit) and self._expected[0] > 0:
            self._learned = True
            if self._learn(*self._expected, now_s):
                line.tell(line)

    def answered_whole(self, now_s: float) -> None:
        """Its answer is here, but was no stream: its first token came some time before."""
        self.end()
        if self.unseen is not None:
            self.unseen.until_s = min(self.unseen.until_s, now_s)

    def end(self) -> None:
        """It makes nobody wait any more; harmless when repeated."""
        if self._waits:
            self._waits = False
            self.line.waiting -= 1
            self.line.waiting_tokens -= self._tokens

    def settled(self, prompt_tokens: int, cached_tokens: int, now_s: float) -> bool:
        """Learn from it, once its tokens are known as the engine reports them; whether the fit is another one now."""
        learned, self._learned = self._learned, True
        if self.loading is not None:
            if not learned and self.seconds is not None:
                expected_s = self.line.taken_for.prefill_s(max(prompt_tokens - cached_tokens, 0), prompt_tokens)
                self.loading(self.seconds - expected_s)
            return False
        return not learned and self._learn(prompt_tokens - cached_tokens, prompt_tokens, now_s)

    def _learn(self, tokens: int, prompt_tokens: int, now_s: float) -> bool:
        seconds, others = self.seconds, self._others
        if seconds is None or tokens <= 0:
            return False
        line, pairs = self.line, tokens * prompt_tokens
        if self._alone:
            return line.learn(PrefillSample(seconds, tokens, pairs), now_s, "alone")
        summed = line.summed
        summed.seconds += seconds
        summed.tokens += tokens + others.tokens
        summed.pairs += pairs + others.pairs
        summed.prompts += 1 + others.prompts
        if summed.prompts < SUMMED_PROMPTS:
            return False
        line.summed = _Sum()
        sample = PrefillSample(summed.seconds, summed.tokens, summed.pairs, summed.prompts, _SUM_WEIGHT)
        return line.learn(sample, now_s, "summed")


@dataclass(slots=True)
class Unseen:
    """A prompt whose first token nobody sees; it is expected to be computed by then."""

    until_s: float
    tokens: int
    pairs: int


class Line:
    """One endpoint, or one rank of it, in one generation: its fit, and what waits there, of ours. `tell` is called
    where the fit is another one, `samples` counts what it is learned from, by place and kind."""

    def __init__(
        self,
        place: str,
        prior: PerfModel,
        now_s: float,
        tell: Callable[["Line"], None],
        samples: Callable[[str, str], Counter],
    ) -> None:
        self.place = place
        self.prior = prior
        self.tell = tell
        self.fit = PerfFit(prior)
        self.told = prior
        self.taken_for = prior
        """What decisions go by."""
        self.kind: PerfModel | None = None
        """What others like it are, once some are known."""
        self.is_kind_known = False
        """Whether some of that kind are more than their prior."""
        self.waiting = 0
        self.waiting_tokens = 0
        self.computed_s = -math.inf
        self.learned_s = now_s
        self.unseen: deque[Unseen] = deque(maxlen=_MOST_UNSEEN)
        self.summed = _Sum()
        self._samples = samples

    def learn(self, sample: PrefillSample, now_s: float, kind: str) -> bool:
        """A sample of this kind; whether it could be one."""
        clamped = self.fit.clamped
        learned = self.fit.prefill(sample, now_s)
        if learned:
            self.learned_s = now_s
        if not learned or self.fit.clamped > clamped:
            kind = "clamped" if learned else "refused"
        self._samples(self.place, kind).inc()
        return learned

    def decode(self, output_tokens: int, decode_s: float) -> bool:
        """An answer of so many tokens; whether it says anything."""
        learned = output_tokens >= _LEAST_OUTPUT_TOKENS and self.fit.decode(decode_s / (output_tokens - 1))
        if learned:
            self._samples(self.place, "decode").inc()
        return learned
