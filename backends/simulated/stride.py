"""A stretch of equal steps, and when each of them ends.

Each step writes one token for every answer, so its context is longer than that of the step before by one token an
answer, and it takes longer by as much: step i of a stretch (from 0) takes `first_s + i * growth_s`, and the first k
take k * first_s + growth_s * k * (k - 1) / 2. A stretch may be cut short at the end of any of its steps.
"""

from dataclasses import dataclass, field
from math import ceil, sqrt

from backends.perf import PerfModel
from backends.simulated.requests import Active


@dataclass(slots=True)
class Chunk:
    """`tokens` of a prompt that are computed in a step."""

    one: Active
    tokens: int

    def seconds(self, perf: PerfModel) -> float:
        """How long it takes, with what its request waits for beside the computing: counted once, then forgotten."""
        delay_s, self.one.delay_s = self.one.delay_s, 0.0
        return delay_s + self.tokens / perf.prefill_tokens_per_s + perf.quad_s_per_token2 * self.tokens * self.one.known


@dataclass(slots=True)
class Stride:
    """`steps` steps from `start_s` on. A step with chunks of prompts is a stretch of its own.

    No steps: nothing runs, the engine waits for a transfer to end at `start_s`.
    """

    start_s: float
    first_s: float
    growth_s: float = 0.0
    steps: int = 1
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        """When the last step ends."""
        return self.end_of(self.steps)

    def end_of(self, steps: int) -> float:
        """When so many steps are done."""
        return self.start_s + (steps * self.first_s + self.growth_s * (steps * (steps - 1) / 2))

    def steps_after(self, moment_s: float) -> int:
        """The fewest steps (one at least, all at most) that end after `moment_s`. Closed form."""
        guess = min(max(self._guess(moment_s - self.start_s), 1), self.steps)
        # The root is exact but for rounding: the neighbours decide by the very sums that the events carry.
        while guess < self.steps and self.end_of(guess) <= moment_s:
            guess += 1
        while guess > 1 and self.end_of(guess - 1) > moment_s:
            guess -= 1
        return guess

    def steps_until(self, moment_s: float) -> int:
        """The fewest steps (one at least, all at most) that end at `moment_s` or after it. Closed form."""
        steps = self.steps_after(moment_s)
        return steps - 1 if steps > 1 and self.end_of(steps - 1) == moment_s else steps

    def _guess(self, span_s: float) -> int:
        half = self.growth_s / 2
        linear = self.first_s - half
        if span_s <= 0 or self.first_s <= 0:
            return 1
        if half * self.steps < 1e-12 * linear:
            steps = span_s / self.first_s
        else:
            steps = (sqrt(linear * linear + 4 * half * span_s) - linear) / (2 * half)
        return self.steps if steps >= self.steps else ceil(steps)
