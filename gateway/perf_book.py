"""The speed of each endpoint, learned from the requests that it serves.

    dispatched ──────────────> first token ───────────────> settled: u, n as reported, tokens given
       Prefill                   its seconds                    └──> PerfFit ──(moved by 1 %)──> its candidates

*Whose seconds.* Prompts wait for each other, share steps, and are computed in an order that is the engine's. But each
second in which an endpoint had something to compute belongs to the first token that came next:

    sent A  sent B        token A              token B           A: token A - sent A
      |───────|──────────────|                    |              B: token B - token A, the later of that and its sending
      |────── A ─────────────|──────── B ─────────|

So the seconds of all prompts sum to the time in which the engine worked, whatever its order, and no queue is counted
twice. One alone is a sample. Others may say too much or too little each (two in one step: all of it, and nothing), but
not together: eight of them are summed and are one sample. Where no request ever is alone, these are what is learned
from.

*What is not seen.* The first token of an answer that is no stream: its prompt's expected tokens go to the next first
token that comes, if they were being computed then. Prompts of other replicas: what is queued there beyond our own. The
tokens of a prompt that failed: they make one sample too slow, which is what the fit is robust to.

*Who is never asked.* An endpoint that looks slow gets no requests, so it could look slow for ever. Where it has had
none for two minutes, its fit is doubted: it is taken to be as fast as the others are against their priors, and its next
request says whether that is true.

*Who is like the others.* Decisions take an endpoint for its kind (`perf_kinds`). The gauges show its own fit.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

from backends import EndpointId, PerfModel
from backends.perf_fit import PerfFit, PrefillSample
from billing import Usage
from gateway.perf_kinds import are_alike, is_known, kinds_of
from gateway.scheduling import Decision
from gateway.telemetry import SpeedMetrics

MOVED: Final = 0.01
"""A fit that moved by less is not told to the decisions."""
SUMMED_PROMPTS: Final = 8
_SUM_WEIGHT: Final = 4.0
_LEAST_OUTPUT_TOKENS: Final = 4
_MOST_UNSEEN: Final = 64
DOUBTED_AFTER_S: Final = 120.0
_LOOK_EVERY_S: Final = 10.0
_USUAL_REQUESTS: Final = 256


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
        "seconds",
        "unseen",
    )

    def __init__(self, line: "_Line", sent_s: float, decision: Decision, others_tokens: float) -> None:
        self.line = line
        self._sent_s = sent_s
        self._tokens = decision.queue_tokens
        self._expected = decision.work_tokens, decision.prompt_tokens
        self._others = _Sum(tokens=others_tokens)
        self._alone = line.waiting == 0 and not others_tokens
        self._waits = True
        self.unseen: _Unseen | None = None
        """Where it is known that nobody will see its first token."""
        self.seconds: float | None = None
        """What its computing took, once it is known."""
        self._learned = False
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
        if not is_known(line.fit) and self._expected[0] > 0:
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
class _Unseen:
    """A prompt whose first token nobody sees; it is expected to be computed by then."""

    until_s: float
    tokens: int
    pairs: int


class _Line:
    """One endpoint in one generation: its fit, and what waits there, of ours."""

    def __init__(self, endpoint_id: str, prior: PerfModel, now_s: float, book: "PerfBook") -> None:
        self.endpoint_id = endpoint_id
        self.prior = prior
        self.tell = book.tell
        self.fit = PerfFit(prior)
        self.told = prior
        self.taken_for = prior
        """What decisions go by."""
        self.kind: PerfModel | None = None
        """What others like it are, once some are known."""
        self.waiting = 0
        self.waiting_tokens = 0
        self.computed_s = -math.inf
        self.learned_s = now_s
        self.unseen: deque[_Unseen] = deque(maxlen=_MOST_UNSEEN)
        self.summed = _Sum()
        self._samples = book.metrics.samples

    def learn(self, sample: PrefillSample, now_s: float, kind: str) -> bool:
        """A sample of this kind; whether it could be one."""
        clamped = self.fit.clamped
        learned = self.fit.prefill(sample, now_s)
        if learned:
            self.learned_s = now_s
        if not learned or self.fit.clamped > clamped:
            kind = "clamped" if learned else "refused"
        self._samples(self.endpoint_id, kind).inc()
        return learned

    def decode(self, output_tokens: int, decode_s: float) -> bool:
        """An answer of so many tokens; whether it says anything."""
        learned = output_tokens >= _LEAST_OUTPUT_TOKENS and self.fit.decode(decode_s / (output_tokens - 1))
        if learned:
            self._samples(self.endpoint_id, "decode").inc()
        return learned


class PerfBook:
    """One fit for each endpoint; `changed` is told of those that moved. Plain calls, no I/O.

    `priors` are the configured speeds. All of it costs a request about 40 µs, the gauges of a fit that moved included.
    """

    def __init__(
        self,
        priors: Mapping[EndpointId, PerfModel],
        metrics: SpeedMetrics,
        clock: Callable[[], float],
        changed: Callable[[str, PerfModel], None],
    ) -> None:
        self._priors: dict[str, PerfModel] = dict(priors.items())
        self.metrics = metrics
        """Where speeds are shown and samples counted."""
        self._clock = clock
        self._changed = changed
        self._next_look_s = -math.inf
        self._tells = 0
        self._requests = 0
        self._usual_tokens = self._usual_prompt_tokens = 0.0
        self._lines = {endpoint_id: self._begin(endpoint_id) for endpoint_id in self._priors}

    def join(self, endpoint_id: str, prior: PerfModel) -> None:
        """An endpoint is new, or is reached in another way, and is believed to be as fast as this by who configures it.
        What was learned stays where that is no news."""
        if self._priors.get(endpoint_id) == prior:
            self._changed(endpoint_id, self._lines[endpoint_id].taken_for)
            return
        self._priors[endpoint_id] = prior
        self.new_generation(endpoint_id, 0)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more; what is still under way there teaches nothing."""
        self._priors.pop(endpoint_id, None)
        self._lines.pop(endpoint_id, None)

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """The engine is another one now: what was learned of its predecessor is forgotten. It is hoped to be like the
        others of its kind, where they are known. O(endpoints)."""
        self._lines[endpoint_id] = line = self._begin(endpoint_id)
        self._look_at_kinds()
        if line.kind is not None:
            line.fit, line.told, line.taken_for = PerfFit(line.kind), line.kind, line.kind
            self._show(line)
        self._changed(endpoint_id, line.taken_for)

    def speed_of(self, endpoint_id: str) -> PerfModel:
        """The speed as decisions see it. Raises `KeyError` for an endpoint without a prior. O(1)."""
        return self._lines[endpoint_id].taken_for

    def dispatched(self, decision: Decision, *, streams: bool) -> Prefill:
        """A prompt is being sent to the endpoint chosen; `streams`: its first token will be seen."""
        now_s, tokens = self._clock(), decision.work_tokens
        self._requests = min(self._requests + 1, _USUAL_REQUESTS)
        self._usual_tokens += (tokens - self._usual_tokens) / self._requests
        self._usual_prompt_tokens += (decision.prompt_tokens - self._usual_prompt_tokens) / self._requests
        self._look_at_idle_ones(decision, now_s)
        line = self._lines[decision.endpoint_id]
        others_tokens = max(decision.chosen.queued_tokens - line.waiting_tokens, 0)
        ahead_s = line.told.wait_s(line.waiting_tokens + others_tokens)
        if not line.waiting:
            while line.unseen and line.unseen[0].until_s <= now_s:
                line.unseen.popleft()
        prefill = Prefill(line, now_s, decision, others_tokens)
        if not streams:
            prefill.end()
            until_s = now_s + ahead_s + line.told.prefill_s(tokens, decision.prompt_tokens)
            prefill.unseen = _Unseen(until_s, tokens, tokens * decision.prompt_tokens)
            line.unseen.append(prefill.unseen)
        return prefill

    def settled(self, prefill: Prefill, usage: Usage, decode_s: float | None) -> None:
        """An answer has ended: its engine has reported `usage`, and it took so long from its first token to its last.

        What the engine has not said, or nobody has seen, is not learned from, but for the first few prompts of an
        endpoint, which are learned from as expected.
        """
        line, now_s = prefill.line, self._clock()
        moved = decode_s is not None and usage.output_tokens is not None and line.decode(usage.output_tokens, decode_s)
        if usage.prompt_tokens is not None and usage.cached_tokens is not None:
            moved |= prefill.settled(usage.prompt_tokens, usage.cached_tokens, now_s)
        if moved:
            self.tell(line)

    def prefill_s(self, endpoint_id: str, usage: Usage) -> float | None:
        """Seconds of computing what was reported as uncached, by the fit; None where that is unknown, or the fit is
        hardly more than its prior."""
        line, prompt_tokens, cached_tokens = self._lines.get(endpoint_id), usage.prompt_tokens, usage.cached_tokens
        if line is None or not is_known(line.fit) or prompt_tokens is None or cached_tokens is None:
            return None
        return line.fit.model.prefill_s(max(prompt_tokens - cached_tokens, 0), prompt_tokens)

    def _begin(self, endpoint_id: str) -> _Line:
        line = _Line(endpoint_id, self._priors[endpoint_id], self._clock(), self)
        self._show(line)
        return line

    @property
    def _usual(self) -> tuple[float, int]:
        """Uncached tokens and tokens of a prompt, on average."""
        return self._usual_tokens, int(self._usual_prompt_tokens)

    def tell(self, line: _Line) -> None:
        """Tell of a fit that has moved; now and then, of what all say. O(endpoints), once in that many calls."""
        model = line.fit.model
        if self._lines.get(line.endpoint_id) is not line or not _moved(line.told, model):
            return
        line.told = model
        self._show(line)
        self._tells += 1
        if self._tells % len(self._lines) == 0:
            self._look_at_kinds()
        self._take_for(line)

    def _look_at_kinds(self) -> None:
        """What endpoints of each kind are like. O(endpoints log endpoints) for each kind."""
        by_prior: dict[PerfModel, dict[int, _Line]] = {}
        for line in self._lines.values():
            by_prior.setdefault(line.prior, {})[id(line.fit)] = line
        for lines in by_prior.values():
            for fits, kind in kinds_of([line.fit for line in lines.values()], self._usual):
                for fit in fits:
                    lines[id(fit)].kind = kind
        for line in self._lines.values():
            self._take_for(line)

    def _take_for(self, line: _Line) -> None:
        """Decide what decisions take an endpoint for, and tell them where that is another speed than before."""
        taken_for, kind = line.told, line.kind
        if kind is not None and (not is_known(line.fit) or are_alike(taken_for, kind, self._usual)):
            taken_for = kind
        if _moved(line.taken_for, taken_for):
            line.taken_for = taken_for
            self._changed(line.endpoint_id, taken_for)

    def _show(self, line: _Line) -> None:
        metrics, endpoint_id, speed = self.metrics, line.endpoint_id, line.told
        metrics.base_s(endpoint_id).set(speed.base_s)
        metrics.prefill_tokens_per_s(endpoint_id).set(speed.prefill_tokens_per_s)
        metrics.quad_s(endpoint_id).set(speed.quad_s_per_token2)
        metrics.itl_s(endpoint_id).set(speed.itl_s)

    def _look_at_idle_ones(self, decision: Decision, now_s: float) -> None:
        """Doubt the fit of the candidate that has been without a sample for longest. O(candidates), now and then."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_EVERY_S
        tokens = max(decision.prompt_tokens, 1)
        known = [self._lines[candidate.endpoint_id] for candidate in decision.candidates]
        busy = [line for line in known if is_known(line.fit) and not _is_idle(line, now_s)]
        idle = [line for line in known if _is_idle(line, now_s) and line.endpoint_id != decision.endpoint_id]
        if not busy or not idle:
            return
        line = min(idle, key=lambda line: line.learned_s)
        line.learned_s = now_s
        slower = median_low([one.told.prefill_s(tokens, tokens) / one.prior.prefill_s(tokens, tokens) for one in busy])
        prior = line.prior
        hoped = replace(
            line.told,
            base_s=prior.base_s * slower,
            prefill_tokens_per_s=prior.prefill_tokens_per_s / slower,
            quad_s_per_token2=prior.quad_s_per_token2 * slower,
        )
        if hoped.prefill_s(tokens, tokens) < line.told.prefill_s(tokens, tokens):
            if line.fit.samples:
                line.fit.doubt()
            else:
                line.fit = PerfFit(hoped)
            line.told = hoped
            self._show(line)
            self._take_for(line)


def _is_idle(line: _Line, now_s: float) -> bool:
    return not line.waiting and now_s - line.learned_s > DOUBTED_AFTER_S


def _moved(was: PerfModel, now: PerfModel) -> bool:
    return any(
        abs(new - old) > MOVED * old
        for old, new in (
            (was.base_s, now.base_s),
            (was.prefill_tokens_per_s, now.prefill_tokens_per_s),
            (was.quad_s_per_token2, now.quad_s_per_token2),
            (was.itl_s, now.itl_s),
        )
    )
