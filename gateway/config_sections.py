"""The sections of the configuration: each field with its default, its unit, and what follows from it.

Each field's description is its documentation: `docs/config.md` lists them and a test compares.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from billing import LedgerUnavailable
from billing.postgres_address import postgres_url
from prefix_index import read_address

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of tenants, keys, share groups and backends: safe in headers, labels, URLs and YAML."""

SERVER_NAME = r"^[A-Za-z0-9_.:-]{1,253}$"
GiB = 1 << 30
PositiveFloat = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]
PrefillRate = Annotated[float, Field(ge=0.1, le=1e9)]
"""Tokens a second; like the bounds of the other priors, those between which a speed is fitted."""

Running = PositiveInt | Literal["auto"]
"""How many requests an endpoint takes at a time; `auto` learns it from the engine's metrics."""


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Listen(Section):
    """Where the gateway listens."""

    host: str = Field("127.0.0.1", description="Address to bind. Use 0.0.0.0 only with a keys file.")
    port: int = Field(8080, ge=0, le=65535, description="Port to bind; 0 takes a free one and prints it.")


class Index(Section):
    """The prefix index."""

    redis_url: str | None = Field(
        None,
        description="Where to share the index: redis://, unix://, redis+sentinel:// or redis+cluster://, with TLS"
        " rediss...; default: a private Valkey.",
    )
    redis_username: str | None = Field(None, description="User at Redis; default: the default user.")
    redis_password_file: Path | None = Field(None, description="File with the password of that user.")
    redis_password_env: str | None = Field(None, description="Environment variable with the password of that user.")
    redis_ca_file: Path | None = Field(None, description="Certificate authorities to trust beside the system's.")
    redis_cert_file: Path | None = Field(None, description="Client certificate for Redis and sentinels.")
    redis_key_file: Path | None = Field(None, description="Private key of that certificate.")
    sentinel_username: str | None = Field(None, description="User at the sentinels; default: the default user.")
    sentinel_password_file: Path | None = Field(None, description="File with the password of the sentinels.")
    sentinel_password_env: str | None = Field(None, description="Environment variable with the sentinels' password.")
    embedded: bool = Field(True, description="Start a private Valkey when no redis_url is given (extra `embedded`).")
    dir: Path | None = Field(None, description="Keep the private Valkey's data here, so that it survives a restart.")
    pool: str = Field("default", pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Name of the pool of endpoints.")
    shards: int = Field(1, ge=1, le=64, description="Parts of the index, each in a slot of its own in a cluster.")
    deadline_ms: PositiveFloat = Field(5.0, description="Longest wait for Redis before the local twin answers, ms.")
    speculative_s: PositiveFloat = Field(
        600.0, description="How long a prompt that was sent counts as cached before the engine has said so, seconds."
    )
    max_bytes: int = Field(4 * GiB, ge=1 << 20, description="Most memory of the index in Redis, all shards, bytes.")
    block_size: Annotated[int, Field(gt=0, lt=1 << 31)] | None = Field(
        None, description="Tokens a block; default: what the engines of a model report (their greatest common divisor)."
    )
    capacity_blocks: PositiveInt | None = Field(
        None, description="Blocks one endpoint can hold, where the engine does not report it."
    )

    @field_validator("redis_url")
    @classmethod
    def _readable(cls, url: str | None) -> str | None:
        if url is not None:
            read_address(url)
        return url

    @model_validator(mode="after")
    def _one_password(self) -> "Index":
        if self.redis_password_file is not None and self.redis_password_env is not None:
            raise ValueError("the password is given twice: redis_password_file and redis_password_env")
        given = self.redis_password_file is not None or self.redis_password_env is not None
        if given and self.redis_url is not None and read_address(self.redis_url).password is not None:
            raise ValueError("the password is given twice: in redis_url and by file or variable")
        return self


class Ledger(Section):
    """The usage ledger."""

    path: Path = Field(Path("prefixgate.db"), description="SQLite file; one gateway process owns it.")
    url: str | None = Field(
        None,
        description="PostgreSQL in place of the file, postgresql://user@host/database, for any number of gateways.",
    )
    password_file: Path | None = Field(None, description="File with the password of that user.")
    password_env: str | None = Field(None, description="Environment variable with the password of that user.")
    sync: Literal["normal", "disk"] = Field(
        "normal", description="`normal` survives the death of the gateway, `disk` also a power loss."
    )
    on_ledger_down: Literal["deny", "spool"] = Field(
        "deny",
        description="While usage cannot be written: `deny` refuses requests, `spool` keeps it on the local disk and"
        " writes it later.",
    )
    spool: Path = Field(
        Path("prefixgate.spool"), description="Folder of what waits for the ledger; one gateway process owns it."
    )
    spool_max_bytes: int = Field(
        GiB, ge=1 << 20, description="Most bytes in that folder; beyond them requests are refused."
    )
    takeover_s: PositiveFloat = Field(
        30.0,
        description="A gateway whose session at PostgreSQL is gone for so long is dead: another closes what it left"
        " open, seconds.",
    )
    chain_tokens: Annotated[int, Field(ge=16, lt=1 << 31)] | None = Field(
        None, description="Keep a hash for each so many tokens of a prompt, such as 256, for replays; default: none."
    )

    @field_validator("url")
    @classmethod
    def _of_postgres(cls, url: str | None) -> str | None:
        if url is not None:
            try:
                postgres_url(url)
            except LedgerUnavailable as error:
                raise ValueError(error.why) from None
        return url

    @model_validator(mode="after")
    def _one_password(self) -> "Ledger":
        by_url = self.url is not None and postgres_url(self.url).password is not None
        if sum((self.password_file is not None, self.password_env is not None, by_url)) > 1:
            raise ValueError("the password is given twice: choose one of password_file, password_env and the URL")
        return self


class Billing(Section):
    """What bills do beside adding up."""

    credit_own_misses: bool = Field(
        False, description="Give back what a tenant lost where another endpoint than the chosen one had its prefix."
    )


class Limits(Section):
    """Sizes and patience."""

    max_body_bytes: PositiveInt = Field(16 * 1024 * 1024, description="Longest request body, bytes.")
    connect_s: PositiveFloat = Field(2.0, description="Longest wait for a connection to an endpoint, seconds.")
    first_byte_s: PositiveFloat = Field(
        600.0, description="Longest wait for the first bytes of an answer, prefill included, seconds."
    )
    idle_s: PositiveFloat = Field(120.0, description="Longest silence inside an answer, seconds.")
    connections_per_endpoint: PositiveInt = Field(1024, description="Most connections to one endpoint.")
    concurrent_requests: PositiveInt = Field(4096, description="Most requests that are let in at a time.")
    queue_requests: Annotated[int, Field(ge=0)] = Field(
        1024, description="Most requests that wait for a place; more are answered 503."
    )
    queue_s: PositiveFloat = Field(10.0, description="How long they may wait for it, seconds.")
    buffered_bytes: PositiveInt = Field(
        GiB, description="Most bytes of request bodies in memory; what does not fit is answered 503."
    )
    connections: PositiveInt = Field(16384, description="Most connections of clients; more are answered 503.")
    header_s: PositiveFloat = Field(10.0, description="Longest time for the head of a request to arrive, seconds.")
    body_idle_s: PositiveFloat = Field(
        30.0, description="In so many seconds a body must be whole, or 500 bytes for each of them have come."
    )
    write_idle_s: PositiveFloat = Field(
        60.0, description="A client that has read nothing of its answer for so long is cut, seconds."
    )
    keep_alive_s: PositiveFloat = Field(75.0, description="How long an idle connection of a client is kept, seconds.")
    drain_s: PositiveFloat = Field(30.0, description="How long a stopping gateway waits for open answers, seconds.")
    drain_notice_s: Annotated[float, Field(ge=0)] = Field(
        0.0, description="How long it still takes new connections before, while /ready says 503, seconds."
    )
    close_idle_s: Annotated[float, Field(ge=0)] = Field(
        2.0, description="How long it keeps idle connections open, for requests that are on their way, seconds."
    )


class Quota(Section):
    """Limits and budgets: how they are counted. What they are is in the keys file."""

    limits_down: Literal["local", "deny", "allow"] = Field(
        "local",
        description="While Redis is away: `local` lets each replica grant its share of every limit, `deny` refuses "
        "requests under limits, `allow` lets them in uncounted.",
    )
    unpriced: Literal["deny", "allow"] = Field(
        "deny", description="Requests under a budget for a model without a price: refused, or let in uncounted."
    )
    cached_token_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="How much a cached prompt token counts towards tokens per minute, 0 to 1."
    )
    default_output_tokens: PositiveInt = Field(
        1024, description="Tokens held for an answer whose request sets no limit."
    )
    hold_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        60.0, description="How long what a replica holds outlives that replica, seconds."
    )
    deadline_ms: PositiveFloat = Field(100.0, description="Longest wait for Redis before `limits_down`, ms.")


class Scheduling(Section):
    """How an endpoint is chosen."""

    policy: Literal["prefix", "round_robin", "least_requests", "random"] = Field(
        "prefix", description="`prefix` takes the least cost in seconds; the others look at no prefix."
    )
    observe: Literal["round_robin", "least_requests", "random"] | None = Field(
        None, description="Route by this one, and only record what `policy` would have chosen."
    )
    near_tie_s: Annotated[float, Field(ge=0)] = Field(
        0.002, description="Endpoints this close to the best are chosen among at random, seconds."
    )
    cheaper_within_s: Annotated[float, Field(ge=0, le=60)] = Field(
        0.0, description="Endpoints so close to the best may be chosen for costing less an hour, seconds; 0: never."
    )
    prefill_tokens_per_s: PrefillRate = Field(8000.0, description="Prior for the prefill speed, tokens a second.")
    base_s: Annotated[float, Field(ge=0, le=600)] = Field(
        0.01, description="Prior for the fixed cost of a prefill, seconds."
    )
    quad_s_per_token2: Annotated[float, Field(ge=0, le=1e-3)] = Field(
        1.2e-9, description="Prior for attention's part, seconds."
    )
    itl_s: Annotated[float, Field(ge=0, le=60)] = Field(
        0.02, description="Prior for the time between two tokens, seconds."
    )
    prewarm_prefixes: Annotated[int, Field(ge=0, le=64)] = Field(
        0,
        description="Send so many of the most valuable prefixes, at most 64, to an endpoint that came back empty. "
        "Above 0, bodies of requests are kept in memory.",
    )


class FixRule(Section):
    """Requests that are changed on their way, so that more of their prompts is found in caches."""

    tenants: tuple[str, ...] = Field((), description="Tenants that it is for; empty: all.")
    routes: tuple[Literal["/v1/chat/completions", "/v1/messages", "/v1/responses"], ...] = Field(
        (), description="Paths that it is for; empty: all three."
    )
    models: tuple[str, ...] = Field((), description="Models that it is for, as clients name them; empty: all.")
    mode: Literal["off", "shadow", "safe", "consented"] = Field(
        "off",
        description="`shadow` only estimates the gain; `safe` changes nothing that a model sees; `consented`: the "
        "tenant has agreed to changes of its prompts.",
    )
    fixes: tuple[Literal["tools", "lines", "day", "compact"], ...] | None = Field(
        None, description="What is changed; default: `tools` and `lines`, in `safe` mode `compact`."
    )
    ab_share: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="Share of the jobs or conversations that is fixed; the rest is left as it is, to compare with."
    )
    shadow_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.05, description="Share of the requests that `shadow` measures."
    )
    tools_order: Literal["name", "first_seen"] = Field("name", description="The order that a set of tools gets.")
    volatile_to: Literal["system_end", "last_user"] = Field(
        "system_end", description="Where `lines` puts lines that change."
    )
    most_lines: Annotated[int, Field(ge=1, le=16)] = Field(
        4, description="Where more lines of a prompt change than this, none is moved."
    )


class Timing(Section):
    """Where the time of requests goes, for those who ask."""

    header: Literal["asked", "always", "never"] = Field(
        "asked", description="Which answers tell the times of their steps: those of requests that ask, all, none."
    )


class Tracing(Section):
    """Spans of requests, for an OpenTelemetry collector."""

    otlp_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/\s@]+(/\S*)?$",
        description="Base URL of a collector that takes OTLP over HTTP (extra `otel`); default: no tracing.",
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="Share of the requests that are traced, of those whose caller does not say, 0 to 1."
    )
    metrics_interval_s: Annotated[float, Field(ge=1, le=3600)] | None = Field(
        None, description="How often metrics of calls of engines are sent there too, seconds; default: never."
    )
    service_name: str = Field("prefixgate", min_length=1, description="Name of this service in its spans.")
    headers_file: Path | None = Field(None, description="File with header fields for the collector, name=value.")
    headers_env: str | None = Field(None, description="Environment variable with these header fields.")
    ca_file: Path | None = Field(None, description="Certificate authorities to trust in place of the usual ones.")

    @model_validator(mode="after")
    def _one_place_for_headers(self) -> "Tracing":
        if self.headers_file is not None and self.headers_env is not None:
            raise ValueError("the headers are given twice: headers_file and headers_env")
        return self
