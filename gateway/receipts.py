"""The engine's word against ours: what a receipt does to the index, and what is learned from it.

    dispatch      matched: 40 confirmed, 60 speculative; the prompt has 100 blocks, all of it speculative from now on
    first token   the prompt was computed: 100 confirmed, and speculative is again what it was before, 60
    the end       40 expected, 25 reported: nobody has more than 25 of this prefix there, but this prompt is there whole
    no answer     speculative is again what it was before

    receipt --judge--> operations  --> index
               `-----> comparison  --> survival (p), contradictions (a restart), reliability table, metrics

Where a holder's coverage comes from KV events, those know better: receipts then write nothing that is confirmed, and
what they say otherwise is counted as a gap. Only this replica's own copy of the index still goes by them: another one
may read the events, and while Redis is away the copy is all there is.

Where the tokens of a chain are not the engine's own, the counts of the two cannot be compared. Where an engine reports
nothing, nothing is compared either; but it has computed the prompt.

Two traps. An answer's usage comes last, so other prompts of the same burst may have been computed, and confirmed, since
this one found a block missing: a loss is written once, and a receipt of what was sent before that does not write it
again. And engines that predict several tokens at a time always report one block less than they have: that would cut
every branch that shares a prefix at its last block, so a shortfall of exactly one block that comes every time is taken
for a habit.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from gateway.log_lines import LOGGER
from gateway.reliability import Mode, Outcome, ReliabilityTable
from gateway.scheduling import RecentWork, expected_cached_tokens
from gateway.telemetry import Telemetry
from prefix_index import HASH_BYTES, Chain, Claim
from prefix_index.contradictions import Comparison, Contradictions
from prefix_index.fill_rates import FillRates
from prefix_index.survival import SurvivalBook

HABIT_RUN: Final = 4
"""So many hits in a row that were one block of the engine short are its habit."""
CONFIRMED_FOR_S: Final = 1.0
"""How long what was written at the first token need not be written again at the end: the index keeps an order of use,
to which a second is nothing."""
MOST_LOSSES: Final = 4096
"""Losses that are remembered as written."""


class Sent(msgspec.Struct, frozen=True):
    """One attempt: a prompt that was sent to an endpoint, and what was known there when it was matched at `sent_s`.

    `age_s` and `turnovers` say how long ago the confirmed run was last used (None: unknown). `engine_block_tokens` is
    the engine's own block (1: it reuses single tokens; None: as ours). `followed`: the holder's coverage comes from KV
    events, which are in step. `exact`: the tokens of the chain are the engine's own. `place`: the rank, where chosen.
    """

    endpoint_id: str
    holder: str
    chain: Chain
    sent_s: float
    confirmed_blocks: int = 0
    speculative_blocks: int = 0
    age_s: float | None = None
    turnovers: float | None = None
    engine_block_tokens: int | None = None
    followed: bool = False
    exact: bool = True
    place: str = ""

    @property
    def engine_block(self) -> int:
        """Tokens in what the engine reuses as a whole."""
        return self.engine_block_tokens or self.chain.block_size

    @property
    def reusable_tokens(self) -> int:
        """What the engine can reuse if all that is confirmed is there."""
        chain = self.chain
        return expected_cached_tokens(self.confirmed_blocks * chain.block_size, chain.prompt_tokens, self.engine_block)

    @property
    def prompt(self) -> tuple[str, bytes]:
        """Holder and last hash: the same for attempts with the same whole blocks at one place."""
        return self.holder, self.chain.hashes[-HASH_BYTES:]

    @property
    def mode(self) -> Mode:
        """Where the holder's coverage comes from."""
        return Mode.EVENTS if self.followed else Mode.RECEIPTS


class Receipt(msgspec.Struct, frozen=True):
    """How an attempt ended. `began`: a first token came, so the prompt was computed.

    `expected_tokens` is what the records say was expected, `reported_tokens` what the engine says was cached,
    `noted_tokens` what `Receipts.dispatched` was told would be computed; None is unknown.
    """

    sent: Sent
    began: bool
    expected_tokens: int | None = None
    reported_tokens: int | None = None
    noted_tokens: int | None = None


class Forget(msgspec.Struct, frozen=True):
    """The holder has nothing of the chain from this block on, on any branch; as far as `claim` goes."""

    from_block: int
    claim: Claim


class Observe(msgspec.Struct, frozen=True):
    """The holder has all of the chain."""

    claim: Claim


Operation = Forget | Observe


class Verdict(msgspec.Struct, frozen=True):
    """What a receipt means. `operations` are for the index, in order, `here` for this replica's copy of it alone.

    `compared_tokens` is how many were looked for, None where nothing could be compared; of these `short_tokens` were
    missing: more than 0 is a contradiction. `lost_block` is the first that is missing then. `more_tokens` were there
    beyond what was known. `restarted`: the holder was cleared, since too much was missing at once.
    """

    operations: tuple[Operation, ...]
    outcome: Outcome
    compared_tokens: int | None = None
    short_tokens: int = 0
    more_tokens: int = 0
    lost_block: int = 0
    restarted: bool = False
    here: tuple[Operation, ...] = ()

    @property
    def contradicts(self) -> bool:
        """Whether less was there than was known to be."""
        return self.short_tokens > 0


def at_first_token(sent: Sent) -> tuple[Operation, ...]:
    """The prompt is computed: what requests that come while the answer is still written may rely on."""
    return () if sent.followed else (Observe(Claim.CONFIRMED), *_withdrawn(sent))


def judge(receipt: Receipt, *, habit_tokens: int = 0) -> Verdict:
    """What follows from a receipt; an engine of such a habit reports so many tokens less than it has. Pure, O(1).

    Operations of `at_first_token` must have been applied where an answer began.
    """
    sent, reported = receipt.sent, receipt.reported_tokens
    if not receipt.began:
        return Verdict(_withdrawn(sent), Outcome.NOT_COMPUTED)
    observed = (Observe(Claim.CONFIRMED),)
    confirmed, here = (_withdrawn(sent), observed) if sent.followed else (observed, ())
    if reported is None or not sent.exact:
        return Verdict(confirmed, Outcome.UNREPORTED if reported is None else Outcome.INEXACT, here=here)
    known, block_size = sent.reusable_tokens, sent.chain.block_size
    short = max(known - reported, 0)
    if reported and short <= habit_tokens:
        short = 0
    if short:
        lost = reported // block_size
        cut = (Forget(lost, Claim.CONFIRMED),)
        if sent.followed:
            return Verdict(confirmed, Outcome.LESS, known, short, 0, lost, here=(*cut, *here))
        return Verdict((*cut, *confirmed), Outcome.LESS, known, short, 0, lost)
    # Engines whose blocks are not ours find parts of a block that we do not count.
    rounding = 0 if sent.engine_block % block_size == 0 else block_size - 1
    more = max(reported - known - rounding, 0)
    return Verdict(confirmed, Outcome.MORE if more else Outcome.AGREED, known, 0, more, here=here)


def _withdrawn(sent: Sent) -> tuple[Operation, ...]:
    """What this attempt made speculative is so no more; what was before stays."""
    if sent.speculative_blocks >= len(sent.chain):
        return ()
    return (Forget(sent.speculative_blocks, Claim.SPECULATIVE),)


def _residue(sent: Sent) -> tuple[Operation, ...]:
    """What `_withdrawn` leaves to another attempt with the same prompt, which had made it speculative before: where
    none is under way any more, nobody else takes it back."""
    if sent.confirmed_blocks < len(sent.chain) <= sent.speculative_blocks:
        return (Forget(sent.confirmed_blocks, Claim.SPECULATIVE),)
    return ()


class CoverageIndex(Protocol):
    """What receipts need of the index. Plain calls that never raise."""

    def observe(self, holder: str, chain: Chain, claim: Claim, /) -> None:
        """The holder has all of the chain."""

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim, /) -> None:
        """The holder has nothing from this block on."""

    def observe_here(self, holder: str, chain: Chain, claim: Claim, /) -> None:
        """The same for this replica's copy alone, as `forget_here`."""

    def forget_here(self, holder: str, chain: Chain, from_block: int, claim: Claim, /) -> None: ...

    def clear(self, holder: str, /) -> None:
        """The holder has nothing."""


class Receipts:
    """Judges receipts, and acts on them. Survival and fill rates are kept by endpoint: a restart changes neither.

    All calls are plain, make no I/O and take O(1). `clock` is monotonic, in seconds, and that of `Sent.sent_s`.
    """

    def __init__(self, index: CoverageIndex, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        self._index = index
        self._telemetry = telemetry
        self._clock = clock
        self._survival: SurvivalBook[str] = SurvivalBook()
        self.fills: FillRates[str] = FillRates()
        self.recent_work = RecentWork()
        """What each endpoint computed lately, as this replica sent it there."""
        self._contradictions: Contradictions[str] = Contradictions()
        self._reliability = ReliabilityTable()
        self._short_runs: dict[str, int] = {}
        self._losses: dict[tuple[str, bytes], float] = {}
        self._under_way: dict[tuple[str, bytes], int] = {}
        """Attempts that have not ended, by holder and prompt."""
        self._confirmed: dict[tuple[str, bytes], float] = {}
        """Of these, when a prompt was last written as computed; nothing of its holder was written as lost since."""

    def turnovers(self, endpoint_id: str, age_s: float | None, capacity_tokens: int | None) -> float | None:
        """How often the endpoint's cache was filled in the last `age_s`; None where that cannot be known."""
        return self.fills.turnovers(endpoint_id, age_s, capacity_tokens, self._clock())

    def probability(self, endpoint_id: str, age_s: float | None, turnovers: float | None) -> float:
        """How likely a confirmed run is still there. Where events tell of evictions, give None for both."""
        return self._survival.probability(endpoint_id, age_s, turnovers)

    def habit_tokens(self, endpoint_id: str, engine_block: int) -> int:
        """What the endpoint always reports less than it has: a block of its own, or nothing."""
        return engine_block if self._short_runs.get(endpoint_id, 0) >= HABIT_RUN else 0

    def dispatched(self, sent: Sent, uncached_tokens: float, queue_tokens: float | None = None) -> None:
        """A prompt is on its way; so many of its tokens are about to be computed there, and will fill its cache.

        `queue_tokens` is what they are to those who wait for them; None: as many.
        """
        self.fills.note(sent.place or sent.endpoint_id, uncached_tokens, self._clock())
        self.recent_work.note(sent.place or sent.endpoint_id, uncached_tokens)
        queued = uncached_tokens if queue_tokens is None else queue_tokens
        self.recent_work.asked(sent.chain.prompt_tokens, uncached_tokens, queued)
        prompt = sent.prompt
        self._under_way[prompt] = self._under_way.get(prompt, 0) + 1

    def first_token(self, sent: Sent) -> None:
        """The first token of an answer (not of an error) came."""
        self._apply(sent, at_first_token(sent))
        if not sent.followed:
            self._confirmed[sent.prompt] = self._clock()

    def ended(self, receipt: Receipt) -> Verdict:
        """An attempt has ended, however: once for each `Sent`. Writes to the index, learns, counts."""
        sent = receipt.sent
        if receipt.noted_tokens is not None and receipt.reported_tokens is not None:
            computed = sent.chain.prompt_tokens - receipt.reported_tokens
            self.recent_work.correct(sent.place or sent.endpoint_id, computed - receipt.noted_tokens)
        verdict = judge(receipt, habit_tokens=self.habit_tokens(sent.endpoint_id, sent.engine_block))
        if verdict.compared_tokens:
            verdict = self._compare(receipt, verdict)
        if verdict.restarted:
            self._index.clear(sent.holder)
            self._forget_confirmed(sent.holder)
        self._apply(sent, verdict.operations)
        if self._was_last(sent):
            self._apply(sent, _residue(sent))
        self._apply_here(sent, verdict.here)
        self._count(receipt, verdict)
        return verdict

    def cleared(self, holder: str) -> None:
        """The holder was cleared by others: what was sent before is no sign of a restart."""
        self._contradictions.cleared(holder, self._clock())
        self._forget_confirmed(holder)

    def removed(self, endpoint_id: str, holder: str) -> None:
        """The endpoint is none of the fleet any more."""
        for forget in (self._survival.forget, self.fills.forget, self.recent_work.forget, self._reliability.forget):
            forget(endpoint_id)
        self._contradictions.forget(holder)
        self._short_runs.pop(endpoint_id, None)

    def as_json(self) -> dict[str, object]:
        """How far expectations can be relied on, for the admin API: plain data."""
        return self._reliability.as_json(self._survival.table())

    def _was_last(self, sent: Sent) -> bool:
        """Whether no other attempt of this replica with the same prompt is under way at the holder."""
        prompt = sent.prompt
        left = self._under_way.pop(prompt, 1) - 1
        if left > 0:
            self._under_way[prompt] = left
        else:
            self._confirmed.pop(prompt, None)
        return left <= 0

    def _is_confirmed(self, sent: Sent) -> bool:
        """Whether the index was told just now that the prompt is computed, and of no loss at its holder since."""
        at_s = self._confirmed.get(sent.prompt)
        return at_s is not None and self._clock() - at_s < CONFIRMED_FOR_S

    def _forget_confirmed(self, holder: str) -> None:
        for prompt in [prompt for prompt in self._confirmed if prompt[0] == holder]:
            del self._confirmed[prompt]

    def _compare(self, receipt: Receipt, verdict: Verdict) -> Verdict:
        """Learn from what was looked for and reported; returns the verdict as it is then."""
        sent, known = receipt.sent, verdict.compared_tokens or 0
        self._learn_habit(sent, known - (receipt.reported_tokens or 0))
        age_s, turnovers = (None, None) if sent.followed else (sent.age_s, sent.turnovers)
        lost = sent.chain.hashes[verdict.lost_block * HASH_BYTES : (verdict.lost_block + 1) * HASH_BYTES]
        seen = Comparison(
            expected_tokens=known,
            reported_tokens=known - verdict.short_tokens,
            age_s=age_s,
            turnovers=turnovers,
            survival=self._survival.assured(sent.endpoint_id, age_s, turnovers),
            sent_s=sent.sent_s,
            lost=lost,
        )
        if verdict.contradicts and not sent.followed and self._is_written(sent, lost):
            return replace(verdict, operations=tuple(op for op in verdict.operations if isinstance(op, Observe)))
        if sent.followed or known < 2 * max(sent.engine_block, sent.chain.block_size):
            self._learn(sent.endpoint_id, (seen,))  # of short runs, all may be lost to the engine's way of rounding
            return verdict
        finding = self._contradictions.add(sent.holder, seen, self._clock())
        self._learn(sent.endpoint_id, finding.learnable)
        return replace(verdict, restarted=finding.restarted)

    def _learn(self, endpoint_id: str, learnable: tuple[Comparison, ...]) -> None:
        for seen in learnable:
            self._survival.learn(endpoint_id, seen.age_s, seen.turnovers, seen.expected_tokens, seen.reported_tokens)

    def _learn_habit(self, sent: Sent, short_tokens: int) -> None:
        """Only a hit says something: where nothing was there, the habit does not show."""
        if short_tokens == sent.engine_block < sent.reusable_tokens:
            self._short_runs[sent.endpoint_id] = min(self._short_runs.get(sent.endpoint_id, 0) + 1, HABIT_RUN)
        elif short_tokens == 0:
            self._short_runs.pop(sent.endpoint_id, None)

    def _is_written(self, sent: Sent, lost: bytes) -> bool:
        """Whether this loss was written since the prompt was sent; from now on it is."""
        key = (sent.holder, lost)
        written_s = self._losses.pop(key, None)
        is_written = written_s is not None and written_s >= sent.sent_s
        self._losses[key] = written_s if written_s is not None and is_written else self._clock()
        if len(self._losses) > MOST_LOSSES:
            del self._losses[next(iter(self._losses))]
        return is_written

    def _apply(self, sent: Sent, operations: tuple[Operation, ...]) -> None:
        for operation in operations:
            if isinstance(operation, Forget):
                self._index.forget(sent.holder, sent.chain, operation.from_block, operation.claim)
                if operation.claim is Claim.CONFIRMED:
                    self._forget_confirmed(sent.holder)
            elif operation.claim is not Claim.CONFIRMED or not self._is_confirmed(sent):
                self._index.observe(sent.holder, sent.chain, operation.claim)

    def _apply_here(self, sent: Sent, operations: tuple[Operation, ...]) -> None:
        for operation in operations:
            if isinstance(operation, Observe):
                self._index.observe_here(sent.holder, sent.chain, operation.claim)
            else:
                self._index.forget_here(sent.holder, sent.chain, operation.from_block, operation.claim)

    def _count(self, receipt: Receipt, verdict: Verdict) -> None:
        sent, telemetry = receipt.sent, self._telemetry
        endpoint_id, mode = sent.endpoint_id, sent.mode
        telemetry.receipts(endpoint_id, mode.value, verdict.outcome.value).inc()
        self._reliability.count(endpoint_id, mode, verdict.outcome)
        if verdict.restarted:
            telemetry.inferred_restarts(endpoint_id).inc()
            self._reliability.restarted(endpoint_id, mode)
            fields = {"endpoint": endpoint_id, "holder": sent.holder}
            LOGGER.warning("endpoint lost its cache, going by what it reports", extra={"fields": fields})
        expected, reported = receipt.expected_tokens, receipt.reported_tokens
        if verdict.compared_tokens is None or expected is None or reported is None:
            return
        self._reliability.compare(endpoint_id, mode, sent.chain.prompt_tokens, expected, reported)
        for kind, tokens in (
            ("prompt", sent.chain.prompt_tokens),
            ("expected", expected),
            ("reported", reported),
            ("too_many", max(expected - reported, 0)),
            ("too_few", max(reported - expected, 0)),
        ):
            telemetry.expected_vs_reported(endpoint_id, mode.value, kind).inc(tokens)
