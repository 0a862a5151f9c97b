"""What a settlement says of its cached tokens: the verdict on the engine's report, and why the rest was missed.

decision     who could have taken it, and what each had           kept with the request anyway
earlier      the closest prompt of its key and model: where this one parts from it, and in what   (divergence/)
settlement   what the engine reports ──> verdict, miss, lost tokens ──> ledger row, metrics
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from billing import Usage
from billing.types import Verdict
from billing.verification.verdicts import Miss, MissReason, Prefixes, Suspects, is_doubtful, miss_of, verdict_of
from gateway.divergence.types import Change, Looked
from gateway.divergence.watching import Watch
from gateway.exchange import Exchange
from gateway.fleet import Fleet
from gateway.log_lines import LOGGER
from gateway.receipts import Sent
from gateway.scheduling import Candidate, Decision, expected_cached_tokens
from gateway.telemetry import Telemetry
from gateway.types import Plan, Reason, TokenSource
from prefix_index import Match


class Judgement(msgspec.Struct, frozen=True):
    """What goes into a settlement. `doubtful` is None where nothing was expected or reported.

    `changed_segment` is the part of the prompt in which it is no longer an earlier one, where that is why it missed, or
    where the engine does not tell what was cached.
    """

    verdict: Verdict | None = None
    miss: Miss | None = None
    doubtful: bool | None = None
    looked: Looked | None = None
    changed_segment: str | None = None
    lost_tokens: int | None = None


_NO_JUDGEMENT: Final = Judgement()


INDEX_FORGETS_S: Final = 24 * 3600.0
"""What nobody used for a day is no longer in the index."""


class MissReasons:
    """Judges what engines report. Plain calls, no I/O."""

    def __init__(
        self, fleet: Fleet, telemetry: Telemetry, watch: Watch, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._fleet = fleet
        self._metrics = telemetry.verification
        self._watch = watch
        self._monotonic = monotonic
        self._suspects = Suspects()

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """Another engine answers there now: what is held against the one before it, is not held against it."""
        self._suspects.forget(endpoint_id)
        self._metrics.split_prefill_suspected(endpoint_id).set(0)

    def removed(self, endpoint_id: str) -> None:
        """The endpoint is none of the fleet any more."""
        self._suspects.forget(endpoint_id)

    def is_suspect(self, endpoint_id: str) -> bool:
        """Whether an endpoint's reports look like those of a split prefill, again and again."""
        return self._suspects.is_suspect(endpoint_id)

    def judge(self, exchange: Exchange, usage: Usage | None) -> Judgement:
        """Hold a report against what was known when the request was sent. `usage` is the engine's own, else None.

        To be called before the index is told of the end. Changes nothing.
        """
        sent, decision = exchange.prompt_sent, exchange.decision
        if sent is None or decision is None or not exchange.computed or exchange.plan.no_affinity is Reason.NO_KV:
            return _NO_JUDGEMENT
        looked = self._look(exchange)
        reported = None if usage is None else usage.cached_tokens
        expected, tolerance = exchange.expected_cached_tokens, max(sent.engine_block, sent.chain.block_size)
        verdict = verdict_of(expected, reported, tolerance)
        if usage is None or reported is None:
            return Judgement(verdict, None, None, looked, *_changed(looked))
        if expected is None:
            miss = None if reported else _not_comparable(exchange.plan, usage, tolerance)
            return Judgement(verdict, miss, None, looked)
        miss = None
        if reported + tolerance < _reusable(sent, len(sent.chain)):
            miss = miss_of(reported, self._prefixes(exchange, sent, decision, expected, looked), tolerance)
        segment = _changed(looked)[0] if miss is not None and miss.reason is MissReason.PROMPT_CHANGED else None
        lost_tokens = None if miss is None else miss.lost_tokens
        doubtful = is_doubtful(usage.prompt_tokens, reported, expected)
        return Judgement(verdict, miss, doubtful, looked, segment, lost_tokens)

    def _look(self, exchange: Exchange) -> Looked | None:
        try:
            return self._watch.look(exchange.request, exchange.plan)
        except Exception as error:  # noqa: BLE001 - a bill must be written, whatever a client's prompt looks like
            _say(exchange, error)
            return None

    def _note(self, exchange: Exchange, looked: Looked, cached_tokens: int | None) -> None:
        try:
            self._watch.note(exchange.request, exchange.plan, looked, exchange.prompt_holder, cached_tokens)
        except Exception as error:  # noqa: BLE001 - the same
            _say(exchange, error)

    def settled(self, exchange: Exchange, judgement: Judgement, endpoint_id: str | None, usage: Usage | None) -> None:
        """A request has ended, however; once for each. Its prompt is an earlier one from now on. `usage` as above."""
        if judgement.looked is not None:
            self._note(
                exchange, _as_judged(judgement.looked, judgement), None if usage is None else usage.cached_tokens
            )
        if endpoint_id is None:
            return
        if judgement.verdict is not None:
            self._metrics.verdicts(endpoint_id, judgement.verdict.value).inc()
        if judgement.miss is not None:
            reason = judgement.miss.reason.value
            self._metrics.misses(endpoint_id, reason).inc()
            if judgement.lost_tokens:
                self._metrics.lost_tokens(endpoint_id, reason).inc(judgement.lost_tokens)
        if judgement.changed_segment is not None:
            self._metrics.changes(judgement.changed_segment.partition(" ")[0]).inc()
        if judgement.doubtful is not None and self._suspects.note(endpoint_id, doubtful=judgement.doubtful):
            self._metrics.split_prefill_suspected(endpoint_id).set(1)
            LOGGER.warning(
                "endpoint reports all but one prompt token as cached where little was expected, again and again: "
                "a known fault of engines with split prefill; see docs/verification.md",
                extra={"fields": {"endpoint": endpoint_id}},
            )

    def _prefixes(
        self, exchange: Exchange, sent: Sent, decision: Decision, expected: int, looked: Looked | None
    ) -> Prefixes:
        chain, match = exchange.plan.chain, exchange.match
        able = {sent.endpoint_id, *(candidate.endpoint_id for candidate in decision.candidates)}
        earlier = None if looked is None else looked.earlier
        parting = None if looked is None else looked.parting
        holders = [exchange.prompt_holder] if earlier is None else [exchange.prompt_holder, earlier.holder]
        return Prefixes(
            reusable=_reusable(sent, len(chain)),
            expected=expected,
            elsewhere=self._most_elsewhere(exchange, decision.candidates, expected),
            unable=_reusable(sent, _most_held(match, able)),
            sent_before=None if looked is None or earlier is None else _reusable(sent, looked.shared_blocks),
            parted=parting is not None,
            restarted=any(self._fleet.endpoint_of(holder) is None for holder in holders),
            expired=earlier is not None and self._monotonic() - earlier.at_s > INDEX_FORGETS_S,
            equal_behind=0 if parting is None else parting.lost_tokens,
        )

    def _most_elsewhere(self, exchange: Exchange, candidates: Sequence[Candidate], expected: int) -> int:
        """The most that another endpoint would have been expected to report; 0 where none was to have more."""
        most = expected
        for candidate in candidates:
            if candidate.known_tokens > most and candidate.place != exchange.place:
                most = max(most, self._fleet.expected_at(candidate, exchange.plan, exchange.match))
        return most if most > expected else 0


def _as_judged(looked: Looked, judgement: Judgement) -> Looked:
    """With the tokens that the miss is said to have lost, so that all figures agree."""
    lost_tokens = judgement.lost_tokens
    if looked.parting is None or judgement.changed_segment is None or lost_tokens is None:
        return looked
    return replace(looked, parting=replace(looked.parting, lost_tokens=lost_tokens))


def _say(exchange: Exchange, error: Exception) -> None:
    fields = {"request_id": exchange.request.id, "error": type(error).__name__}
    LOGGER.error("a prompt could not be held against earlier ones", extra={"fields": fields})


def _reusable(sent: Sent, blocks: int) -> int:
    """Tokens that are reused of so many leading blocks."""
    chain = sent.chain
    return expected_cached_tokens(blocks * chain.block_size, chain.prompt_tokens, sent.engine_block)


def _most_held(match: Match[str], able: set[str]) -> int:
    """The longest confirmed run at an endpoint that could not take the request, in blocks."""
    return max((blocks for holder, blocks in match.blocks.items() if holder.rpartition("@")[0] not in able), default=0)


def _not_comparable(plan: Plan, usage: Usage, tolerance: int) -> Miss | None:
    prompt = usage.prompt_tokens
    if prompt is None or prompt <= tolerance:
        return None
    not_believed = plan.source is TokenSource.BYTES or plan.local_tokens is not None
    return Miss(MissReason.TOKENS_DEGRADED if not_believed else MissReason.UNKNOWN)


def _changed(looked: Looked | None) -> tuple[str | None, int | None]:
    """In what a prompt changed, and how many tokens that lost; None where it did not, or only went on."""
    parting = None if looked is None else looked.parting
    if parting is None or parting.change is Change.GROWN:
        return None, None
    return parting.text, parting.lost_tokens
