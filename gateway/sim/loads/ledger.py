"""The gateway's own log as a load: what was served in a period, to be served again by other endpoints, another policy.

    ledgers --groups_of--> which models, which sizes of chains --> Workload (lazy: a pass over the files each time)
                   |                                          `--> Recorded, what was measured of those requests
                   `--> LeftOut, what cannot be replayed and why

The ledger keeps a hash for so many tokens of a prompt (`ledger.chain_tokens`). Where that changed within the period,
finer chains are read in the coarser blocks, as long as these are multiples. A pool is of one model, so each model as
clients name it is a load of its own; so is each adapter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from billing import Group, LedgerPeriod, Recorded, groups_of, past_requests, recorded
from gateway.sim.types import SimRequest, Workload
from prefix_index import HASH_BYTES, Chain, coarser

NO_CHAIN = "no_chain"
"""No chain was kept: it was off, or the prompt's tokens were not known."""
OTHER_BLOCKS = "other_blocks"
"""Its chain was kept in blocks that do not fit into those of the load."""
NOT_MEASURED = "not_measured"
"""How many tokens prompt or answer had is unknown."""

_US = 1_000_000


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Requests of a model that are not in its load: how many by `NO_CHAIN`, `OTHER_BLOCKS`, `NOT_MEASURED`, or the
    state in which they ended where nobody pays for that; and the prompt tokens of those that were paid for."""

    requests: Mapping[str, int]
    prompt_tokens: int
    of_prompt_tokens: int
    """Of all requests that were paid for, in the load or not."""

    @property
    def token_share(self) -> float | None:
        """Prompt tokens left out over all; None where nothing was paid for."""
        return self.prompt_tokens / self.of_prompt_tokens if self.of_prompt_tokens else None


@dataclass(frozen=True, slots=True)
class LedgerLoad:
    """One model's requests of a period. `workload` and `recorded`, which are of the same requests, are None where none
    can be replayed."""

    model: str
    workload: Workload | None
    recorded: Recorded | None
    left_out: LeftOut


def ledger_loads(period: LedgerPeriod, model: str | None = None) -> tuple[LedgerLoad, ...]:
    """A load for each model that was asked for in the period, by name, or for one; empty where there were no requests.

    Arrivals count from the first request that is replayed. Raises `LedgerUnavailable`, `PeriodInvalid`.
    """
    groups = [group for group in groups_of(period) if model in (None, group.model)]
    return tuple(
        _load(period, name, [group for group in groups if group.model == name])
        for name in sorted({group.model for group in groups})
    )


@dataclass(frozen=True, slots=True)
class LedgerRequests:
    """The requests of one model, in order; each iteration reads the ledger anew, with the same result. O(1) memory.

    `sizes` are the blocks of the chains as kept, each a divisor of `block_size`; `first_us` is second 0.
    """

    period: LedgerPeriod
    model: str
    sizes: tuple[int, ...]
    block_size: int
    first_us: int

    def __iter__(self) -> Iterator[SimRequest]:
        """Raises `LedgerUnavailable`."""
        block_size, first_us = self.block_size, self.first_us
        for number, past in enumerate(past_requests(self.period, self.model, self.sizes)):
            kept = past.chain
            # Where bytes stood in for tokens, a chain may be longer than the prompt was by the engine's count.
            hashes = kept.hashes[: past.prompt_tokens // kept.block_tokens * HASH_BYTES]
            yield SimRequest(
                number=number,
                at_s=(past.opened_at_us - first_us) / _US,
                chain=coarser(Chain(hashes, kept.block_tokens, past.prompt_tokens), block_size),
                output_tokens=max(past.output_tokens, 1),  # an engine does not compute a prompt for less
                tenant=past.tenant_id,
            )


def _load(period: LedgerPeriod, model: str, groups: list[Group]) -> LedgerLoad:
    usable = [group for group in groups if _why_not(group) is None]
    block_size = _best_block_size(usable)
    taken = [group for group in usable if group.block_tokens and block_size % group.block_tokens == 0]
    if not taken:
        return LedgerLoad(model, None, None, _left_out(groups, taken))
    sizes = tuple(sorted({group.block_tokens for group in taken if group.block_tokens}))
    requests = LedgerRequests(period, model, sizes, block_size, min(group.first_us for group in taken))
    workload = Workload(name=f"ledger {model}", block_size=block_size, requests=requests)
    return LedgerLoad(model, workload, recorded(period, model, taken), _left_out(groups, taken))


def _why_not(group: Group) -> str | None:
    """Why a group cannot be replayed, whatever the blocks of the load; None where it can."""
    if not group.billable:
        return group.state
    if group.block_tokens is None:
        return NO_CHAIN
    return None if group.measured else NOT_MEASURED


def _best_block_size(usable: Iterable[Group]) -> int:
    """The size of blocks, of those that were kept, in which most requests can be read; the finest of equal ones."""
    kept: Counter[int] = Counter()
    for group in usable:
        kept[group.block_tokens or 0] += group.tally.requests
    fits = {size: sum(count for finer, count in kept.items() if size % finer == 0) for size in kept}
    return max(fits, key=lambda size: (fits[size], -size), default=0)


def _left_out(groups: Iterable[Group], taken: list[Group]) -> LeftOut:
    requests: Counter[str] = Counter()
    prompt_tokens = of_prompt_tokens = 0
    for group in groups:
        of_prompt_tokens += group.tally.prompt_tokens
        if group not in taken:
            requests[_why_not(group) or OTHER_BLOCKS] += group.tally.requests
            prompt_tokens += group.tally.prompt_tokens
    return LeftOut(requests, prompt_tokens, of_prompt_tokens)
