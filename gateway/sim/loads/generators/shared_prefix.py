"""Groups of prompts with a common beginning: the test that most engines and routers are shown with.

group 0   [ shared 0 ][ own 0 ]   [ shared 0 ][ own 1 ]   ...
group 1   [ shared 1 ][ own 2 ]   ...                          shuffled, and again from the start if `rounds` says so
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.sim.loads.again import dice_of
from gateway.sim.loads.names import names_from, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The requests, all at 0 s. Lengths in tokens; keeps the order (4 bytes a prompt) and the names of the prefixes.

    The whole blocks of the `shared` tokens are the group's; a block with the end of the shared part and the beginning
    of a prompt's own is the prompt's own.
    """

    groups: int
    prompts: int
    shared_tokens: int
    own_tokens: int
    output_tokens: int
    seed: int
    block_size: int
    rounds: int
    shuffled: bool

    def __iter__(self) -> Iterator[SimRequest]:
        """O(blocks) a request."""
        tokens = self.shared_tokens + self.own_tokens
        shared_blocks = self.shared_tokens // self.block_size
        own_blocks = tokens // self.block_size - shared_blocks
        heads = [names_from(group * shared_blocks, shared_blocks) for group in range(self.groups)]
        first_own = self.groups * shared_blocks
        order = array("I", range(self.groups * self.prompts))
        if self.shuffled:
            dice_of(self.seed).shuffle(order)
        for turn in range(self.rounds):
            for place, prompt in enumerate(order, turn * len(order)):
                names = heads[prompt // self.prompts] + names_from(first_own + prompt * own_blocks, own_blocks)
                yield SimRequest(place, 0.0, Chain(names, self.block_size, tokens), self.output_tokens)


def shared_prefix(  # noqa: PLR0913 -- the five numbers are the name that this test goes by
    groups: int,
    prompts: int,
    shared: int,
    own: int,
    output: int,
    *,
    seed: int = 0,
    block_size: int = 16,
    rounds: int = 1,
    shuffled: bool = True,
) -> Workload:
    """`groups` x `prompts` requests of `shared` + `own` tokens with answers of `output`, all at 0 s.

    With `rounds` the same prompts come again in the same order. Give it arrivals: `arrivals.poisson(...)`. Raises
    LoadImpossible for a number below 0, no groups or no prompts.
    """
    require(groups > 0 and prompts > 0 and rounds > 0 and block_size > 0, "there are groups, prompts and blocks")
    require(min(shared, own, output) >= 0, "lengths are not negative")
    requests = SharedPrefix(groups, prompts, shared, own, output, seed, block_size, rounds, shuffled)
    return Workload(f"shared-prefix-{groups}x{prompts}", block_size, requests)
