"""What an endpoint will reuse of a prompt: the average for the cost, the most likely figure for the records. Pure.

    |--- confirmed ------------------|              there with probability p
    |--- speculative --------|                      sent there, being computed now: it will be there
    |--- host, disk ------------------------|       to be fetched first: worth a part of its computation
    cost:     speculative + p x the rest            seconds are weighed by what happens on average
    records:  confirmed where p >= 0.5, else 0      a client is told what is most likely: the median, not the average

A speculation comes true once its prompt is computed, and is confirmed then, by the first token: before that it may not
be told as expected, yet sending the same prompt elsewhere would compute it twice, so to the cost it counts at once.
"""

import msgspec

from gateway.scheduling.cost import expected_cached_tokens

LIKELY = 0.5
HOST_WORTH = 0.9
"""What a token in the host's memory saves of its computation. A model of 70 B on four GPUs computes 12,000 tokens a
second, which is 4 GB of cache, and fetches 20 to 50 over 16 lanes of PCIe 4 or 5. Assumed from those, not measured."""
DISK_WORTH = 0.5
"""The same for NVMe (3 to 12 GB a second) and other servers' memory."""


class Coverage(msgspec.Struct, frozen=True):
    """What is known of one prompt at one endpoint.

    `survival` is the probability that the confirmed run is still there, where there is one. `withheld_tokens` is what
    the engine always reports less than it has (a block, where it predicts several tokens). `host_blocks` and
    `disk_blocks` are runs that are to be had from slower memories, which only events tell of.
    """

    confirmed_blocks: int = 0
    speculative_blocks: int = 0
    survival: float = 1.0
    withheld_tokens: int = 0
    host_blocks: int = 0
    disk_blocks: int = 0


def expectation(
    known: Coverage, *, block_size: int, prompt_tokens: int, engine_block_tokens: int | None
) -> tuple[int, float]:
    """Tokens that the endpoint will most likely report as cached, and those that it reuses on average.

    The first are whole blocks of the engine (`engine_block_tokens`; None: as ours), and so are the bounds of the
    second. 0 <= both < prompt_tokens, or 0. O(1).
    """
    engine_block, withheld = engine_block_tokens or block_size, known.withheld_tokens

    def reused(blocks: int) -> int:
        if not blocks:
            return 0
        tokens = expected_cached_tokens(blocks * block_size, prompt_tokens, engine_block)
        return max(tokens - withheld, 0) if withheld else tokens

    confirmed, speculative = reused(known.confirmed_blocks), reused(known.speculative_blocks)
    near = confirmed if confirmed > speculative else speculative
    average = speculative + known.survival * (near - speculative)
    expected = confirmed if known.survival >= LIKELY else 0
    if known.host_blocks or known.disk_blocks:
        host, disk = reused(known.host_blocks), reused(known.disk_blocks)
        expected = max(expected, host, disk)
        average += HOST_WORTH * max(host - near, 0) + DISK_WORTH * max(disk - max(near, host), 0)
    return expected, average
