"""One request inside the engine: its tokens, how far they are computed, and the blocks that hold the result."""

from dataclasses import dataclass, field

from backends.reference.block_pool import block_hash, root_hash
from backends.reference.types import BlockHash, BlockId, GenerationRequest


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """Prompt and output of one request as one list of tokens.

        tokens    [ p p p p | p p p p | p p o o | o ]         o: sampled, p: prompt
        computed  --------------------------^                 tokens whose keys and values are in the cache
        blocks    [    3    |    1    |    8    ]             cover at least the computed tokens
        published ------------------^                         leading blocks entered in the prefix cache

    `cached_tokens` is set when the request is first scheduled and never again, however often it is preempted.
    `drafted_tokens` and `accepted_tokens` are None until a draft was made.
    """

    request: GenerationRequest
    block_size: int
    tokens: list[int] = field(init=False)
    chain: list[BlockHash] = field(default_factory=list)
    blocks: list[BlockId] = field(default_factory=list)
    computed_tokens: int = 0
    published_blocks: int = 0
    cached_tokens: int | None = None
    created_cache_tokens: int = 0
    preemptions: int = 0
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_tokens)

    @property
    def output_tokens(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def pending_tokens(self) -> int:
        """Tokens known but not computed: 1 while decoding, more while prefilling."""
        return len(self.tokens) - self.computed_tokens

    def hash_of(self, block_index: int) -> BlockHash:
        """Hash of the `block_index`-th whole block; extends the chain as far as needed."""
        size = self.block_size
        while len(self.chain) <= block_index:
            at = len(self.chain) * size
            parent = self.chain[-1] if self.chain else root_hash(self.request.cache_salt)
            self.chain.append(block_hash(parent, self.tokens[at : at + size]))
        return self.chain[block_index]

    def reusable_chain(self) -> list[BlockHash]:
        """Hashes of the blocks a cache may supply: whole ones, and never the one with the last token.

        The last token must run through the model for its logits, and its whole block with it: ⌊(n − 1) / B⌋ blocks.
        """
        return [self.hash_of(index) for index in range((len(self.tokens) - 1) // self.block_size)]
