"""Who is not asked to hand prompts over, or is handed none, for now.

    P hands nothing over, and has not of late                     P is set aside
    P and D fail together, the request is answered without them   twice in a row: the pair is
        `── of an endpoint two pairs, and no other went well      the endpoint is

That one of two failed does not say which. So the pair is left, and an endpoint only once it has failed with others
too. A request that everybody fails at says nothing of anybody. What is set aside is asked again after a while, or once
one of the two has restarted; where an engine cannot answer alone, it is asked all the same when nobody else is left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.log_lines import LOGGER
from gateway.split_metrics import SplitMetrics

FAILURES: Final = 2
"""In a row, of requests that were answered elsewhere: one may have been a restart."""
PARTNERS: Final = 2
"""With so many an endpoint must have failed before it is left by itself."""

PairIds = tuple[str, str]
"""Who computes a prompt and who answers."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Who takes part in no split, and which pairs in none together."""

    endpoints: frozenset[str] = frozenset()
    pairs: frozenset[PairIds] = frozenset()


NOBODY: Final = Aside()


class SetAside:
    """One per process; plain calls. O(what is set aside), and that is little."""

    def __init__(self, metrics: SplitMetrics, clock: Callable[[], float], for_s: float) -> None:
        self._metrics = metrics
        self._clock = clock
        self._for_s = for_s
        self._endpoints: dict[str, float] = {}
        """Until when, by the monotonic clock; pairs likewise."""
        self._pairs: dict[PairIds, float] = {}
        self._failures: dict[PairIds, tuple[int, float]] = {}
        """Of pairs, since they went well; and when the last one was seen."""
        self._went_well_s: dict[str, float] = {}

    def now(self, failed: Sequence[tuple[PairIds, float]] = ()) -> Aside:
        """Who is set aside; of a request, the pairs that it has `failed` at too."""
        if not self._endpoints and not self._pairs and not failed:
            return NOBODY
        now_s = self._clock()
        for endpoint_id in [one for one, until_s in self._endpoints.items() if until_s <= now_s]:
            self._ask_again(endpoint_id)
        for pair in [one for one, until_s in self._pairs.items() if until_s <= now_s]:
            self._join(pair)
        return Aside(frozenset(self._endpoints), frozenset({*self._pairs, *(pair for pair, _ in failed)}))

    def hands_nothing_over(self, endpoint_id: str) -> None:
        """An endpoint computed a prompt, and kept it. That of one which has handed others over of late is the request's
        doing, and no client is to set an endpoint aside."""
        if self._does_well(endpoint_id):
            return
        self._leave(endpoint_id)
        LOGGER.warning(
            "a prefill endpoint hands nothing over: is its engine set up for it? Requests are not split there for now; "
            "see docs/disaggregation.md",
            extra={"fields": {"endpoint": endpoint_id, "for_s": self._for_s}},
        )

    def went_well(self, pair: PairIds) -> None:
        """A request was answered by a pair."""
        self._failures.pop(pair, None)
        self._went_well_s[pair[0]] = self._went_well_s[pair[1]] = self._clock()

    def failed(self, pair: PairIds, sent_s: float) -> None:
        """A request at which a pair had failed, to which it was sent then, was answered without it. Of those that were
        under way together one counts."""
        count, last_s = self._failures.get(pair, (0, sent_s))
        if (count and sent_s < last_s) or pair in self._pairs:
            return
        now_s = self._clock()
        self._failures[pair] = count + 1, now_s
        if count + 1 < FAILURES:
            return
        self._pairs[pair] = now_s + self._for_s
        self._count(pair[1])
        LOGGER.warning(
            "two endpoints fail together, and requests are answered without them: can the one that answers reach the "
            "other, and are both of one build? Nothing is handed over between them for now; see docs/disaggregation.md",
            extra={"fields": {"prefill_endpoint": pair[0], "endpoint": pair[1], "for_s": self._for_s}},
        )
        for endpoint_id in pair:
            self._may_leave(endpoint_id)

    def forget(self, endpoint_id: str) -> None:
        """Its engine is another one now, or it is none of the fleet any more."""
        self._ask_again(endpoint_id)
        for pair in [one for one in self._failures if endpoint_id in one]:
            self._join(pair)
            del self._failures[pair]
        self._went_well_s.pop(endpoint_id, None)

    def _may_leave(self, endpoint_id: str) -> None:
        """Leave an endpoint that failed with several, and went well with nobody meanwhile."""
        partners = sum(endpoint_id in pair for pair in self._pairs)
        if partners >= PARTNERS and not self._does_well(endpoint_id):
            self._leave(endpoint_id)

    def _does_well(self, endpoint_id: str) -> bool:
        well_s = self._went_well_s.get(endpoint_id)
        return well_s is not None and well_s >= self._clock() - self._for_s

    def _leave(self, endpoint_id: str) -> None:
        self._endpoints[endpoint_id] = self._clock() + self._for_s
        self._metrics.set_aside(endpoint_id).set(1)

    def _ask_again(self, endpoint_id: str) -> None:
        if self._endpoints.pop(endpoint_id, None) is not None:
            self._metrics.set_aside(endpoint_id).set(0)

    def _join(self, pair: PairIds) -> None:
        """It is asked again; one more failure is enough then."""
        self._failures[pair] = FAILURES - 1, self._clock()
        if self._pairs.pop(pair, None) is not None:
            self._count(pair[1])

    def _count(self, endpoint_id: str) -> None:
        self._metrics.pairs_set_aside(endpoint_id).set(sum(pair[1] == endpoint_id for pair in self._pairs))
