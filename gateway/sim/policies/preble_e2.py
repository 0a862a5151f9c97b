"""`preble`: E2 of Preble, exploitation and exploration.

    cached > uncached at the best endpoint  -> exploit: of those that have that much, the least loaded
    else                                    -> explore: the lowest of load + eviction

    load      seconds of prefill sent there in the last 3 minutes
              + requests there now · mean answer · median seconds a token
    eviction  seconds to compute again what the uncached part pushes out, if it was used in these 3 minutes

What each endpoint has is a mirror, an LRU of the cache's size over what was sent. Under an LRU the prompt pushes out
what is older than the last `capacity` tokens, so what it pushes out and was used lately are
min(uncached, tokens computed in the window + uncached − capacity) tokens, none if that is negative.

As in the published scheduler the prompt's own recomputation is no term of its own, and work is not stolen (that step
is switched off there). Seconds of prefill come from a profile of the engine, as Preble asks for.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from backends.perf import PerfModel
from gateway.sim.policies.outstanding import Outstanding
from gateway.sim.policies.parts import Composed, PolicyArgs
from gateway.sim.policies.prefixes import Approximate
from gateway.sim.types import SimRequest, View

# Constants of the global scheduler of WukLab/preble.
WINDOW_S = 180.0
RECENT_ANSWERS = 200
FIRST_TOKEN_GAP_S = 0.15
FIRST_ANSWER_TOKENS = 45


@dataclass(slots=True)
class _Endpoint:
    """What went to one endpoint lately."""

    sent: deque[tuple[float, float, int]] = field(default_factory=deque)
    prefill_s: float = 0.0
    computed_tokens: int = 0
    gaps_s: deque[float] = field(default_factory=lambda: deque([FIRST_TOKEN_GAP_S], RECENT_ANSWERS))
    gap_s: float = FIRST_TOKEN_GAP_S

    def slide(self, now_s: float) -> None:
        """Let go of what is older than the window."""
        while self.sent and self.sent[0][0] < now_s - WINDOW_S:
            _, prefill_s, tokens = self.sent.popleft()
            self.prefill_s -= prefill_s
            self.computed_tokens -= tokens
        if not self.sent:
            self.prefill_s = 0.0  # sums of floats drift


class Window:
    """Prefill of the last minutes, by endpoint, and `answer_tokens`, the mean of recent answers."""

    def __init__(self, perf: PerfModel) -> None:
        self.perf = perf
        self.endpoints: list[_Endpoint] = []
        self.answer_tokens = float(FIRST_ANSWER_TOKENS)
        self._answers: deque[int] = deque([FIRST_ANSWER_TOKENS], RECENT_ANSWERS)
        self._answers_tokens = FIRST_ANSWER_TOKENS
        self._expected: tuple[int, int] = (-1, 0)
        self._first_s: dict[tuple[int, int], float] = {}

    def grow(self, endpoints: int) -> None:
        """Know of so many endpoints."""
        while len(self.endpoints) < endpoints:
            self.endpoints.append(_Endpoint())

    def expect(self, request: SimRequest, uncached_tokens: int) -> None:
        """So many tokens will be computed where it was just sent to."""
        self._expected = (request.number, uncached_tokens)

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Its prefill weighs on that endpoint for the length of the window."""
        self.grow(endpoint + 1)
        number, tokens = self._expected
        if number != request.number:
            tokens = request.prompt_tokens
        prefill_s = self.perf.prefill_s(tokens, request.prompt_tokens)
        lately = self.endpoints[endpoint]
        lately.sent.append((now_s, prefill_s, tokens))
        lately.prefill_s += prefill_s
        lately.computed_tokens += tokens

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """From here on gaps between tokens are measured."""
        self._first_s[request.number, endpoint] = now_s

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """One more answer to go by."""
        first_s = self._first_s.pop((request.number, endpoint), None)
        if first_s is None or request.output_tokens < 2:
            return
        lately = self.endpoints[endpoint]
        lately.gaps_s.append((now_s - first_s) / (request.output_tokens - 1))
        lately.gap_s = median(lately.gaps_s)
        if len(self._answers) == RECENT_ANSWERS:
            self._answers_tokens -= self._answers[0]
        self._answers.append(request.output_tokens)
        self._answers_tokens += request.output_tokens
        self.answer_tokens = self._answers_tokens / len(self._answers)

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Nothing: nobody told."""


class _ExploitOrExplore:
    def __init__(self, prefixes: Approximate, outstanding: Outstanding, window: Window, capacity_tokens: int) -> None:
        self._prefixes = prefixes
        self._outstanding = outstanding
        self._window = window
        self._capacity_tokens = capacity_tokens

    def choose(self, request: SimRequest, view: View) -> int:
        endpoints = view.endpoints
        self._outstanding.grow(len(endpoints))
        self._window.grow(len(endpoints))
        chain, prompt = request.chain, request.prompt_tokens
        runs = self._prefixes.runs(chain, view)
        living = [endpoint.number for endpoint in endpoints if endpoint.alive]
        cached = [run * chain.block_size for run in runs]
        best = max(cached[n] for n in living)
        if best > prompt - best:
            living = [n for n in living if cached[n] == best]
        costs = [(self._cost_s(n, prompt, prompt - cached[n], view.now_s), n) for n in living]
        chosen = min(costs)[1]
        self._window.expect(request, prompt - cached[chosen])
        return chosen

    def _cost_s(self, number: int, prompt: int, uncached: int, now_s: float) -> float:
        window = self._window
        lately = window.endpoints[number]
        lately.slide(now_s)
        cost_s = lately.prefill_s + self._outstanding.requests[number] * window.answer_tokens * lately.gap_s
        pushed_out = min(uncached, lately.computed_tokens + uncached - self._capacity_tokens)
        return cost_s + window.perf.prefill_s(pushed_out, prompt) if pushed_out > 0 else cost_s


def preble_e2(args: PolicyArgs) -> Composed:
    """Exploit or explore. O(endpoints)."""
    outstanding, window = Outstanding(), Window(args.perf)
    prefixes = Approximate(args.capacity_blocks)
    rule = _ExploitOrExplore(prefixes, outstanding, window, args.capacity_tokens)
    return Composed("preble", rule, (outstanding, window, prefixes))
