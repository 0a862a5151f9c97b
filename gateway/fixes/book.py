"""What fixes have done since this process started, by tenant: what a shadow would gain, and both sides of comparisons.

    shadow   tenant, fixes       requests, prompt tokens, cached as they came, cached as they would be fixed
    arms     tenant, fixes, arm  requests, prompt, cached and output tokens, why answers ended

Plain numbers of this process: the ledger has those of all (`billing.reports.fix_arms`), without why answers ended.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Final

from billing import Usage
from gateway.fix_metrics import FixMetrics
from gateway.types import Applied

MOST_ROWS: Final = 4096
"""Of each kind; tenants are as many as the keys file names."""


@dataclass(slots=True)
class ShadowTally:
    """What measured requests would have had from a cache, in tokens."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_fixed: int = 0


@dataclass(slots=True)
class ArmTally:
    """One side of a comparison; tokens are of those requests whose engine reported what was cached."""

    requests: int = 0
    reported_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    counted_answers: int = 0
    """Those of them whose engine counted the answer too."""
    output_tokens: int = 0
    finishes: dict[str, int] = field(default_factory=dict)
    """Requests by why their answers ended."""


class FixBook:
    """Counts, in metrics too. Plain calls."""

    def __init__(self, metrics: FixMetrics) -> None:
        self._metrics = metrics
        self._shadows: dict[tuple[str, str], ShadowTally] = {}
        self._arms: dict[tuple[str, str, str], ArmTally] = {}

    def applied(self, applied: Applied) -> None:
        """A request had something to fix."""
        for fix in applied.fixes:
            self._metrics.requests(fix, applied.arm.value).inc()

    def shadow(self, tenant: str, names: str, prompt_tokens: int, cached_tokens: int, cached_tokens_fixed: int) -> None:
        """What a request would have had from the cache as it came, and fixed."""
        self._metrics.shadow("measured").inc()
        for kind, tokens in (
            ("prompt", prompt_tokens),
            ("cached", cached_tokens),
            ("cached_fixed", cached_tokens_fixed),
        ):
            self._metrics.shadow_tokens(names, kind).inc(tokens)
        tally = self._shadows.setdefault((tenant, names), ShadowTally())
        tally.requests += 1
        tally.prompt_tokens += prompt_tokens
        tally.cached_tokens += cached_tokens
        tally.cached_tokens_fixed += cached_tokens_fixed
        if len(self._shadows) > MOST_ROWS:
            del self._shadows[next(iter(self._shadows))]

    def shadow_without(self, outcome: str) -> None:
        """A request of which nothing was measured: `unfixed` or `dropped`."""
        self._metrics.shadow(outcome).inc()

    def settled(self, tenant: str, applied: Applied, usage: Usage | None, finish: str) -> None:
        """How a request with something to fix ended."""
        self._metrics.answers(applied.arm.value, finish).inc()
        tally = self._arms.setdefault((tenant, applied.names, applied.arm.value), ArmTally())
        tally.requests += 1
        tally.finishes[finish] = tally.finishes.get(finish, 0) + 1
        if usage is not None and usage.prompt_tokens is not None and usage.cached_tokens is not None:
            output_tokens = usage.output_tokens
            counts = (usage.prompt_tokens, usage.cached_tokens, output_tokens or 0)
            for kind, tokens in zip(("prompt", "cached", "output"), counts, strict=True):
                self._metrics.tokens(applied.names, applied.arm.value, kind).inc(tokens)
            tally.reported_requests += 1
            tally.prompt_tokens += counts[0]
            tally.cached_tokens += counts[1]
            tally.output_tokens += counts[2]
            tally.counted_answers += output_tokens is not None
        if len(self._arms) > MOST_ROWS:
            del self._arms[next(iter(self._arms))]

    def shadows(self) -> Iterator[dict[str, object]]:
        """One row for each tenant and set of fixes."""
        for (tenant, names), tally in sorted(self._shadows.items()):
            yield {"tenant": tenant, "fixes": names, **asdict(tally)}

    def arms(self) -> Iterator[dict[str, object]]:
        """One row for each tenant, set of fixes and side."""
        for (tenant, names, arm), tally in sorted(self._arms.items()):
            yield {"tenant": tenant, "fixes": names, "arm": arm, **asdict(tally)}
