"""Prompts that were sent to one endpoint, as receipts know them."""

from msgspec.structs import replace

from gateway.receipts import Sent
from prefix_index import Chain, Claim, TokenIds, chain_of

BLOCK = 16
CONFIRMED, SPECULATIVE = Claim.CONFIRMED, Claim.SPECULATIVE
HOLDER = "e0@1"


def chain(*blocks: int, rest_tokens: int = 0) -> Chain:
    """A chain whose blocks are told apart by a number each, and some tokens more."""
    ids = b"".join(number.to_bytes(4, "little") * BLOCK for number in blocks) + bytes(4 * rest_tokens)
    return chain_of(TokenIds(ids), b"root", BLOCK)


TEN = chain(*range(10), rest_tokens=5)


def sent(prompt: Chain = TEN, confirmed: int = 0, speculative: int = 0, **more: object) -> Sent:
    known = Sent("e0", HOLDER, prompt, 0.0, confirmed, speculative, engine_block_tokens=BLOCK)
    return replace(known, **more)
