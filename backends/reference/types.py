"""The nouns of the reference engine.

HTTP body --wire--> GenerationRequest --engine--> Delta, Delta, ... (the last one has a finish reason)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NewType, Protocol

RequestId = NewType("RequestId", str)
"""Names one generation inside one engine."""

BlockId = NewType("BlockId", int)
"""Index of a physical block of the KV cache."""

BlockHash = NewType("BlockHash", bytes)
"""16 bytes naming a block's tokens, everything before them, and the salt."""

SMOLLM2 = "smollm2"
TINY = "tiny"


@dataclass(frozen=True, slots=True)
class KvEventsConfig:
    """Where an engine publishes what enters and leaves its cache, as ZeroMQ addresses.

    `url` is bound when its host is `*` or `::` or when it is an `ipc://` one, else connected to. `replay_url`, always
    bound, serves the last `buffer_batches` batches again. Port 0 takes a free one. `topic` is each message's first
    frame.
    """

    url: str
    replay_url: str | None = None
    topic: str = ""
    buffer_batches: int = 10_000

    def __post_init__(self) -> None:
        if self.buffer_batches < 1:
            raise ValueError(f"buffer_batches must be at least 1, not {self.buffer_batches}")


class KvRole(StrEnum):
    """What an engine does for others with what it has computed; the values are vLLM's, without its prefix."""

    PRODUCER = "producer"
    """It computes prompts for others, which fetch its blocks."""
    CONSUMER = "consumer"
    """It fetches blocks of others."""
    BOTH = "both"


class DraftMethod(StrEnum):
    """Who drafts, where an engine speculates."""

    LOOKUP = "lookup"
    """The prompt and the answer so far: what followed the same tokens before."""
    MODEL = "model"
    """A smaller model, or the first layers of the same one."""


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """How an engine drafts. `tokens`: the longest draft of a step. `model`: the model that drafts, of the same
    vocabulary; None: the served one. `layers`: how many of its first layers draft; None: all of them."""

    method: DraftMethod = DraftMethod.LOOKUP
    tokens: int = 4
    model: str | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} of a speculation must be at least 1, not {value}")
        if self.method is DraftMethod.LOOKUP and (self.model or self.layers):
            raise ValueError("a speculation by look-up takes no model and no layers")


class WeightForm(StrEnum):
    """What the matrices of the layers are kept as, and for W8A8 their inputs too; embedding and head stay float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT4 = "int4"
    W8A8 = "w8a8"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How one engine is set up. Everything has a default that runs on a laptop.

    `kv_blocks` × `block_size` is the capacity of the KV cache in tokens; a request longer than that is refused.
    `max_batched_tokens` bounds the tokens computed in one step: smaller means smoother decoding beside a long
    prefill, larger means faster prefill. `threads` is torch's thread count for the whole process, `None` leaves it.
    `kv_events`: where to tell of the cache; None tells nobody. `speculation`: None computes each token in a step.
    `kv_role`: None neither gives blocks to other engines nor fetches theirs. `weights`: fewer bits decode faster.
    """

    model: str = TINY
    served_model_name: str | None = None
    block_size: int = 16
    kv_blocks: int = 1024
    max_model_len: int | None = None
    max_num_seqs: int = 16
    max_batched_tokens: int = 512
    threads: int | None = None
    chat_template: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    kv_events: KvEventsConfig | None = None
    speculation: SpeculationConfig | None = None
    kv_role: KvRole | None = None
    weights: WeightForm = WeightForm.FLOAT32

    def __post_init__(self) -> None:
        for name in ("block_size", "kv_blocks", "max_model_len", "max_num_seqs", "max_batched_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.kv_role and self.speculation and self.speculation.method is DraftMethod.MODEL:
            raise ValueError(
                "blocks are carried without a draft model's: kv_role goes with a speculation by look-up only"
            )
        if self.max_batched_tokens < self.max_num_seqs:
            raise ValueError("max_batched_tokens must be at least max_num_seqs: each running request needs one a step")

    @property
    def served_name(self) -> str:
        """The model name clients use: as configured, else the last part of `model`."""
        return self.served_model_name or Path(self.model).name


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen and when to stop. `temperature` 0 is greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue. `cache_salt` separates KV caches: equal prompts under two salts share nothing."""

    request_id: RequestId
    prompt_tokens: tuple[int, ...] = field(repr=False)
    sampling: SamplingParams
    cache_salt: str = ""


class FinishReason(StrEnum):
    """Why a generation ended; the values are the wire's."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one generation cost so far, in tokens.

    `cached_tokens` prompt tokens were taken from the cache, whole blocks; the rest of `prompt_tokens` ran through the
    model. `created_cache_tokens` prompt tokens were newly put in the cache.
    Of the output, `drafted_tokens` were guessed and `accepted_tokens` of them kept; None where nobody drafts.
    """

    prompt_tokens: int
    cached_tokens: int
    created_cache_tokens: int
    completion_tokens: int
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """News of one generation: the text and the token ids since the last one, and the running receipt."""

    text: str = field(repr=False)
    token_ids: tuple[int, ...] = field(repr=False)
    receipt: Receipt
    finish: FinishReason | None = None
    stop_reason: str | int | None = None


Listener = Callable[[Delta], None]
"""Called on the engine's thread for each delta; must not block."""


class CacheListener(Protocol):
    """Hears what enters and leaves the prefix cache, on the engine's thread, as it happens; must not block."""

    def stored(self, names: Sequence[BlockHash], parent: BlockHash | None, tokens: Sequence[int], salt: str) -> None:
        """Consecutive blocks became findable behind `parent` (None: the start); `tokens` are those of all of them."""

    def removed(self, name: BlockHash) -> None:
        """A block was evicted."""

    def cleared(self) -> None:
        """All blocks were forgotten."""
