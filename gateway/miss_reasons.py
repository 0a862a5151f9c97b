"""What a settlement says of its cached tokens: the verdict on the engine's report, and why the rest was missed.

    decision     who could have taken it, and what each had           kept with the request anyway
    settlement   what the engine reports ──> verdict, miss ──> ledger row, metrics
                 the prompt's chain, where it was computed ──> the last prompts of its key and model

An earlier prompt is kept as the hashes of its blocks, and no text: two of them show to the block where prompts part.
One that a later prompt continues is replaced by it, so a key keeps one for each of its last conversations.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from billing import Usage
from billing.types import Verdict
from billing.verification.verdicts import Miss, MissReason, Prefixes, Suspects, is_doubtful, miss_of, verdict_of
from gateway.exchange import Exchange
from gateway.fleet import Fleet
from gateway.log_lines import LOGGER
from gateway.receipts import Sent
from gateway.scheduling import Candidate, Decision, expected_cached_tokens
from gateway.telemetry import Telemetry
from gateway.types import Reason
from prefix_index import HASH_BYTES, Chain, Match, common_blocks

MOST_PROMPTS: Final = 8
"""Of one key and model."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of all, 8 a block: 64 million tokens in blocks of 16. The prompts of the key that was quiet for longest go first."""


class Earlier(NamedTuple):
    """An earlier prompt as its hashes, the size of its blocks, and the holder that computed it."""

    hashes: bytes
    block_size: int
    holder: str


class Judgement(msgspec.Struct, frozen=True):
    """What goes into a settlement. `doubtful` is None where nothing was expected or reported."""

    verdict: Verdict | None = None
    miss: Miss | None = None
    doubtful: bool | None = None


_NO_JUDGEMENT: Final = Judgement()


class RecentPrompts:
    """The last prompts of each key and model. O(prompts of one key · log blocks) a call."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._prompts: dict[tuple[str, str], list[Earlier]] = {}

    def closest(self, key_id: str, model: str, chain: Chain) -> tuple[Earlier, int] | None:
        """The earlier prompt that shares most with this one, the latest of several, and how many blocks that is."""
        kept = [one for one in self._prompts.get((key_id, model), ()) if one.block_size == chain.block_size]
        if not kept:
            return None
        shared = [common_blocks(one.hashes, chain.hashes) for one in kept]
        most = max(range(len(kept)), key=lambda place: (shared[place], place))
        return kept[most], shared[most]

    def keep(self, key_id: str, model: str, chain: Chain, holder: str) -> None:
        """Remember a prompt; the one that it continues, or repeats, is forgotten."""
        name = key_id, model
        before = self._prompts.pop(name, [])  # put in anew: the key that was quiet for longest comes first
        new = Earlier(chain.hashes, chain.block_size, holder)
        kept = [one for one in before if not chain.hashes.startswith(one.hashes)][1 - MOST_PROMPTS :]
        self._prompts[name] = [*kept, new]
        self._bytes += len(new.hashes) + sum(len(one.hashes) for one in kept) - sum(len(one.hashes) for one in before)
        while self._bytes > self._most_bytes:
            quietest = next(iter(self._prompts))
            prompts = self._prompts[quietest]
            self._bytes -= len(prompts.pop(0).hashes)
            if not prompts:
                del self._prompts[quietest]


class MissReasons:
    """Judges what engines report. Plain calls, no I/O."""

    def __init__(self, fleet: Fleet, telemetry: Telemetry, most_bytes: int = MOST_BYTES) -> None:
        self._fleet = fleet
        self._metrics = telemetry.verification
        self._recent = RecentPrompts(most_bytes)
        self._suspects = Suspects()

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """Another engine answers there now: what is held against the one before it, is not held against it."""
        self._suspects.forget(endpoint_id)
        self._metrics.split_prefill_suspected(endpoint_id).set(0)

    def is_suspect(self, endpoint_id: str) -> bool:
        """Whether an endpoint's reports look like those of a split prefill, again and again."""
        return self._suspects.is_suspect(endpoint_id)

    def judge(self, exchange: Exchange, usage: Usage | None) -> Judgement:
        """Hold a report against what was known when the request was sent. `usage` is the engine's own, else None.

        To be called before the index is told of the end. Changes nothing.
        """
        sent, decision = exchange.sent, exchange.decision
        if sent is None or decision is None or not exchange.computed or exchange.plan.no_affinity is Reason.NO_KV:
            return _NO_JUDGEMENT
        reported = None if usage is None else usage.cached_tokens
        expected, tolerance = exchange.expected_cached_tokens, max(sent.engine_block, sent.chain.block_size)
        verdict = verdict_of(expected, reported, tolerance)
        if usage is None or reported is None:
            return Judgement(verdict)
        if expected is None:
            return Judgement(verdict, None if reported else _not_comparable(usage, tolerance))
        miss = None
        if reported + tolerance < _reusable(sent, len(sent.chain)):
            miss = miss_of(reported, self._prefixes(exchange, sent, decision, expected), tolerance)
        return Judgement(verdict, miss, is_doubtful(usage.prompt_tokens, reported, expected))

    def settled(self, exchange: Exchange, judgement: Judgement, endpoint_id: str | None) -> None:
        """A request has ended, however; once for each. Its prompt is an earlier one from now on."""
        plan, request = exchange.plan, exchange.request
        if exchange.computed and plan.source is not None and len(plan.chain):
            self._recent.keep(request.tenant.key_id, request.model, plan.chain, exchange.holder)
        if endpoint_id is None:
            return
        if judgement.verdict is not None:
            self._metrics.verdicts(endpoint_id, judgement.verdict.value).inc()
        if judgement.miss is not None:
            self._metrics.misses(endpoint_id, judgement.miss.reason.value).inc()
        if judgement.doubtful is not None and self._suspects.note(endpoint_id, doubtful=judgement.doubtful):
            self._metrics.split_prefill_suspected(endpoint_id).set(1)
            LOGGER.warning(
                "endpoint reports all but one prompt token as cached where little was expected, again and again: "
                "a known fault of engines with split prefill; see docs/verification.md",
                extra={"fields": {"endpoint": endpoint_id}},
            )

    def _prefixes(self, exchange: Exchange, sent: Sent, decision: Decision, expected: int) -> Prefixes:
        chain, match = exchange.plan.chain, exchange.match
        able = {candidate.endpoint_id for candidate in decision.candidates}
        found = self._recent.closest(exchange.request.tenant.key_id, exchange.request.model, chain)
        earlier, shared = found or (None, 0)
        holders = [exchange.holder] if earlier is None else [exchange.holder, earlier.holder]
        return Prefixes(
            reusable=_reusable(sent, len(chain)),
            expected=expected,
            elsewhere=self._most_elsewhere(exchange, decision.candidates, expected),
            unable=_reusable(sent, _most_held(match, able)),
            sent_before=None if earlier is None else _reusable(sent, shared),
            parted=earlier is not None and shared < min(len(earlier.hashes) // HASH_BYTES, len(chain)),
            restarted=any(self._fleet.endpoint_of(holder) is None for holder in holders),
        )

    def _most_elsewhere(self, exchange: Exchange, candidates: Sequence[Candidate], expected: int) -> int:
        """The most that another endpoint would have been expected to report; 0 where none was to have more."""
        most = expected
        for candidate in candidates:
            if candidate.known_tokens > most and candidate.endpoint_id != exchange.endpoint_id:
                most = max(most, self._fleet.expected_at(candidate, exchange.plan, exchange.match))
        return most if most > expected else 0


def _reusable(sent: Sent, blocks: int) -> int:
    """Tokens that are reused of so many leading blocks."""
    chain = sent.chain
    return expected_cached_tokens(blocks * chain.block_size, chain.prompt_tokens, sent.engine_block)


def _most_held(match: Match[str], able: set[str]) -> int:
    """The longest confirmed run at an endpoint that could not take the request, in blocks."""
    return max((blocks for holder, blocks in match.blocks.items() if holder.rpartition("@")[0] not in able), default=0)


def _not_comparable(usage: Usage, tolerance: int) -> Miss | None:
    prompt = usage.prompt_tokens
    return Miss(MissReason.UNKNOWN) if prompt is not None and prompt > tolerance else None
