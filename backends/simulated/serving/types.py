"""The nouns of an engine behind a port: what it is, what it is asked, what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends.disaggregated import Role
from backends.simulated.types import EngineSpec

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One engine and its server.

    `dialect`: a name of `DIALECTS`. `version`: of that engine, which decides what its usage and its pages look like;
    None is the one its face was written after. `engine`: memory, speed and habits; None is what is usual there.
    `speed`: seconds of the engine in one of ours. `ranks`: data-parallel ranks, each with a cache. `max_queued`: most
    requests that wait, where the engine has such a bound. `reports_cached_tokens`: its flag for that, where it has one.
    `adapters`: LoRA adapters it was started with; at most `max_adapters` are resident at a time, and one that is not is
    loaded in `adapter_load_s` of the engine's seconds. `tokenizer`: directory of a Hugging Face model whose tokens and
    chat template are used; None is words. `role`: its part where prompts and answers are computed apart;
    `lease_s`: how long, in its seconds, a prefill engine keeps what nobody fetches; `side_port`: where a decode engine
    fetches it, any free one where 0; `bootstrap_port`: where it does unless told. `control_port`: where faults are
    switched on; None is nowhere.
    """

    dialect: str = "vllm"
    version: str | None = None
    model: str = "simulated"
    aliases: tuple[str, ...] = ()
    engine: EngineSpec | None = None
    speed: float = 1.0
    ranks: int = 1
    max_model_len: int = 8192
    max_queued: int | None = None
    api_key: str | None = None
    reports_cached_tokens: bool = True
    has_metrics: bool = True
    adapters: tuple[str, ...] = ()
    max_adapters: int = 4
    adapter_load_s: float = 0.5
    tokenizer: Path | None = None
    role: Role = Role.BOTH
    lease_s: float = 30.0
    bootstrap_port: int = 8998
    side_port: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    control_port: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One rendered prompt; `text` is None where it came as token ids."""

    ids: tuple[int, ...]
    text: str | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A generation as it was asked for, checked. `max_tokens`: None is as many as fit. `rank`: None is any.

    `fields` is the whole body, as it came.
    """

    chat: bool
    model: str
    prompts: tuple[Prompt, ...]
    request_id: str
    fields: Mapping[str, object]
    max_tokens: int | None = None
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    salt: str = ""
    adapter: str | None = None
    rank: int | None = None
    return_token_ids: bool = False


@dataclass(slots=True)
class Tally:
    """What one answer took, as far as it is. Seconds are the engine's. `created_tokens`: None is not told."""

    prompt_tokens: int
    cached_tokens: int = 0
    created_tokens: int | None = 0
    output_tokens: int = 0
    asked_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Record:
    """A request as the engine remembers it, for whoever audits a gateway.

    `part`: whole, or prefill or decode where prompt and answer were computed apart. `outcome`: stop, length, abort or
    lost.
    """

    request_id: str
    rank: int
    adapter: str | None
    part: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    outcome: str


@dataclass(slots=True)
class Totals:
    """Counters of one rank since it was started. `external_tokens` came from other engines."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    external_tokens: int = 0
    external_queries: int = 0
    output_tokens: int = 0
    first_token_s: float = 0.0
    first_tokens: int = 0
    decode_s: float = 0.0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "lost"), 0))
