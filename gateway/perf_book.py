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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

from backends import EndpointId, PerfModel
from backends.perf_fit import TYPICAL_TOKENS, PerfFit
from billing import Usage
from gateway.perf_kinds import are_alike, is_known, kinds_of
from gateway.perf_lines import Line, Prefill, Unseen
from gateway.scheduling import Decision, endpoint_at
from gateway.telemetry import SpeedMetrics

MOVED: Final = 0.01
"""A fit that moved by less is not told to the decisions."""
DOUBTED_AFTER_S: Final = 120.0
"""How long a fit without a new sample is believed, where others would be asked instead."""
_LOOK_EVERY_S: Final = 10.0
_USUAL_REQUESTS: Final = 256
"""The usual prompt is the mean of about so many of the last."""
_LEAST_S: Final = 1e-9
"""Of what is divided by."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A speed as fitted, to so many prefills, and how long ago one of them was the last."""

    speed: PerfModel
    samples: int
    age_s: float

    def as_json(self) -> dict[str, object]:
        """Its figures, in seconds and tokens a second."""
        speed = self.speed
        return {
            "base_s": speed.base_s,
            "prefill_tokens_per_s": speed.prefill_tokens_per_s,
            "quadratic_s": speed.quad_s_per_token2,
            "itl_s": speed.itl_s,
            "samples": self.samples,
            "age_s": self.age_s,
        }


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
        for place in [endpoint_id, *self._ranks_of(endpoint_id)]:
            self._priors.pop(place, None)
            self._lines.pop(place, None)

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """The engine is another one now: what was learned of its predecessor is forgotten. It is hoped to be like the
        others of its kind, where they are known. So are its ranks. O(endpoints) for each."""
        for place in self._ranks_of(endpoint_id):
            self._priors[place] = self._priors[endpoint_id]
            self.new_generation(place, _generation)
        self._lines[endpoint_id] = line = self._begin(endpoint_id)
        self._look_at_kinds()
        if line.kind is not None:
            line.fit, line.told, line.taken_for = PerfFit(line.kind), line.kind, line.kind
            self._show(line)
        self._changed(endpoint_id, line.taken_for)

    def ranks_found(self, endpoint_id: str, places: Sequence[str]) -> None:
        """An endpoint's ranks are sent to one by one: each is learned for itself, and believed to be as the endpoint is
        until then."""
        for place in places:
            if place not in self._lines and endpoint_id in self._priors:
                self._priors[place] = self._priors[endpoint_id]
                self.new_generation(place, 0)

    def _line_at(self, place: str) -> Line:
        line = self._lines.get(place)
        if line is None:  # whether ranks are chosen has changed since
            self.ranks_found(endpoint_at(place), [place])
            line = self._lines[place]
        return line

    def _ranks_of(self, endpoint_id: str) -> list[str]:
        return [place for place in self._lines if place != endpoint_id and endpoint_at(place) == endpoint_id]

    def speed_of(self, endpoint_id: str) -> PerfModel:
        """The speed as decisions see it. Raises `KeyError` for an endpoint without a prior. O(1)."""
        return self._lines[endpoint_id].taken_for

    def known_speed(self, place: str) -> PerfModel | None:
        """The speed as decisions see it, None where it is hardly more than a prior, and others like it are not known
        either. O(1)."""
        line = self._lines.get(place)
        return line.taken_for if line is not None and (is_known(line.fit) or line.is_kind_known) else None

    def fitted(self, place: str) -> "Fitted | None":
        """What was measured at an endpoint or rank; None where nothing was. O(1)."""
        line = self._lines.get(place)
        if line is None or not line.fit.samples:
            return None
        return Fitted(line.fit.model, line.fit.samples, self._clock() - line.learned_s)

    def against_prior(self, endpoint_id: str) -> tuple[float, float, int]:
        """By how many times longer than it is configured with an endpoint takes for the usual prompt (of at least
        `TYPICAL_TOKENS` to compute: few say only how full a step was), and for a token of an answer, and by how many
        samples the fit says so."""
        line = self._lines[endpoint_id]
        tokens, prompt_tokens = (max(usual, TYPICAL_TOKENS) for usual in self._usual)
        prior, fit = line.prior, line.fit.model
        prefill = fit.prefill_s(tokens, int(prompt_tokens)) / max(prior.prefill_s(tokens, int(prompt_tokens)), _LEAST_S)
        return prefill, fit.itl_s / max(prior.itl_s, _LEAST_S), line.fit.samples

    def dispatched(self, decision: Decision, *, streams: bool) -> Prefill:
        """A prompt is being sent to the endpoint chosen; `streams`: its first token will be seen."""
        now_s, tokens = self._clock(), decision.work_tokens
        self._requests = min(self._requests + 1, _USUAL_REQUESTS)
        self._usual_tokens += (tokens - self._usual_tokens) / self._requests
        self._usual_prompt_tokens += (decision.prompt_tokens - self._usual_prompt_tokens) / self._requests
        self._look_at_idle_ones(decision, now_s)
        line = self._line_at(decision.place)
        others_tokens = max(decision.chosen.queued_tokens - line.waiting_tokens, 0)
        ahead_s = line.told.wait_s(line.waiting_tokens + others_tokens)
        if not line.waiting:
            while line.unseen and line.unseen[0].until_s <= now_s:
                line.unseen.popleft()
        prefill = Prefill(line, now_s, decision, others_tokens)
        if not streams:
            prefill.end()
            until_s = now_s + ahead_s + line.told.prefill_s(tokens, decision.prompt_tokens)
            prefill.unseen = Unseen(until_s, tokens, tokens * decision.prompt_tokens)
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

    def _begin(self, endpoint_id: str) -> Line:
        line = Line(endpoint_id, self._priors[endpoint_id], self._clock(), self.tell, self.metrics.samples)
        self._show(line)
        return line

    @property
    def _usual(self) -> tuple[float, int]:
        """Uncached tokens and tokens of a prompt, on average."""
        return self._usual_tokens, int(self._usual_prompt_tokens)

    def tell(self, line: Line) -> None:
        """Tell of a fit that has moved; now and then, of what all say. O(endpoints), once in that many calls."""
        model = line.fit.model
        if self._lines.get(line.place) is not line or not _moved(line.told, model):
            return
        line.told = model
        self._show(line)
        self._tells += 1
        if self._tells % len(self._lines) == 0:
            self._look_at_kinds()
        self._take_for(line)

    def _look_at_kinds(self) -> None:
        """What endpoints of each kind are like. O(endpoints log endpoints) for each kind."""
        by_prior: dict[PerfModel, dict[int, Line]] = {}
        for line in self._lines.values():
            by_prior.setdefault(line.prior, {})[id(line.fit)] = line
        for lines in by_prior.values():
            for fits, kind in kinds_of([line.fit for line in lines.values()], self._usual):
                is_known_kind = any(map(is_known, fits))
                for fit in fits:
                    lines[id(fit)].kind, lines[id(fit)].is_kind_known = kind, is_known_kind
        for line in self._lines.values():
            self._take_for(line)

    def _take_for(self, line: Line) -> None:
        """Decide what decisions take an endpoint for, and tell them where that is another speed than before."""
        taken_for, kind = line.told, line.kind
        if kind is not None and (not is_known(line.fit) or are_alike(taken_for, kind, self._usual)):
            taken_for = kind
        if _moved(line.taken_for, taken_for):
            line.taken_for = taken_for
            self._changed(line.place, taken_for)

    def _show(self, line: Line) -> None:
        metrics, endpoint_id, speed = self.metrics, line.place, line.told
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
        known = [self._line_at(candidate.place) for candidate in decision.candidates]
        busy = [line for line in known if is_known(line.fit) and not _is_idle(line, now_s)]
        idle = [line for line in known if _is_idle(line, now_s) and line.place != decision.place]
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


def _is_idle(line: Line, now_s: float) -> bool:
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
