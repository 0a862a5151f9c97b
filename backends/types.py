"""The nouns of the model servers.

    EndpointConfig --detection--> EndpointFacts          once, and again after a restart
                   --polling----> LoadSample             every few seconds, age-stamped
                   --both-------> EndpointSnapshot       what the scheduler sees

An *endpoint* is one upstream address with one KV cache of its own. Its identity is its id **and** its generation:
a restart empties the cache, so it raises the generation, and what was known of the old one no longer holds.
Everything detected may be unknown: unknown is `None`, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import NewType
from urllib.parse import urlsplit

from backends.errors import InvalidEndpoint
from backends.features import Feature, Features, Standing

EndpointId = NewType("EndpointId", str)
"""Name of one endpoint, unique in the fleet; safe to print and to use as a metric label."""

Headers = tuple[tuple[bytes, bytes], ...]
"""Raw header fields in order, names in lower case, duplicates kept (the shape ASGI uses)."""


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """A LoRA adapter of the model `parent` that an endpoint has without listing it; of `engines` alone, where given."""

    name: str
    parent: str
    engines: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """Where an endpoint is and how to be let in.

    `url` is `http(s)://host[:port][/base/path]`: the base path is kept in front of every path, a trailing slash is
    dropped. `api_key` is sent as a bearer token and never printed. `ca_file` replaces the system's certificate
    authorities; `cert_file` with `key_file` is our client certificate. `server_name` is what the server is called and,
    over TLS, must prove to be, where that is not the URL's host: an address that was found behind a name. `adapters`
    are served where their model is, beside what the endpoint lists.

    Raises `InvalidEndpoint` when the URL is not of that form.
    """

    id: EndpointId
    url: str
    api_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    adapters: tuple[KnownAdapter, ...] = ()

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            parts.port  # noqa: B018  reading it checks that it is a number in range
        except ValueError:
            raise InvalidEndpoint(self.id, "the URL cannot be parsed; check its host and port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidEndpoint(self.id, "the URL must start with http:// or https:// and name a host")
        if parts.username is not None or parts.password is not None:
            raise InvalidEndpoint(self.id, "the URL must not carry credentials; use api_key")
        if parts.query or parts.fragment:
            raise InvalidEndpoint(self.id, "the URL must not carry a query or a fragment")
        object.__setattr__(self, "url", self.url.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Three different patiences of one upstream call, in seconds; none stands in for another.

    `connect_s`: name look-up, TCP and TLS, and waiting for a free place in the pool. `first_byte_s`: from a
    connection in hand to the head of the answer, so sending the body and the whole prefill fall in here. `idle_s`:
    the longest silence between two reads of the body while the reader waits; a reader that pauses does not use it up.
    """

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request as it shall reach the endpoint: `path` with its query, exactly as received; the body unchanged.

    `headers` are the client's; the client decides in `backends.headers` which of them pass.
    """

    method: str
    path: str
    headers: Headers = ()
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model name an endpoint answers to; every alias is one of its own. `parent` names an adapter's base model.

    `alias_of` is the full name of the same model, where the engine's own rules say that this one is short for it.
    """

    id: str
    max_model_len: int | None = None
    parent: str | None = None
    alias_of: str | None = None


@dataclass(frozen=True, slots=True)
class StartedAdapter:
    """An adapter that requests name by its number, and that is no model of its own; `scale` without their saying."""

    number: int
    file: str
    scale: float


class Metering(StrEnum):
    """Whether what a path computes goes on a tenant's bill."""

    FREE = "free"
    """It only reads: text to token ids and back, templates, counts."""
    METERED = "metered"
    """It runs the model."""


class TokenizeForm(StrEnum):
    """How an engine is asked for the token ids of a prompt."""

    MESSAGES = "messages"
    """vLLM's: `POST /tokenize` of a text or of a chat's messages gives `{"tokens": [...]}`."""
    TEXT_ONLY = "text only"
    """The same of texts alone, at the engine's own path; nobody renders chats."""
    INPUTS = "inputs"
    """TGI's: `POST /tokenize {"inputs"}`, `POST /chat_tokenize` of a chat; both give a list of `{"id": ...}`."""
    TEMPLATE = "template"
    """llama.cpp's: `POST /apply-template` of a chat gives its text, `POST /tokenize {"content"}` ids of a text."""


class PriorityForm(StrEnum):
    """What an engine takes in the field `priority`, and which end of it goes first."""

    LOWER_FIRST = "whole number, lower first"
    HIGHER_FIRST = "whole number, higher first"
    SHARE = "0 to 1, higher first"


class EventSourceKind(StrEnum):
    """How the events of a KV cache are got."""

    ZMQ = "zmq"
    """Published on a ZeroMQ socket; what was missed may be replayed."""
    POLL = "poll"
    """Fetched over HTTP, by one reader alone: reading takes them away."""


@dataclass(frozen=True, slots=True)
class EventSourceFacts:
    """Where one data-parallel rank of an endpoint tells what enters and leaves its KV cache.

    `url` as seen from here: one with a `*` for a host is to be bound, since the engine connects to it; to any other we
    connect. To `replay_url` we always connect; None where nothing can be replayed. `topic` is the first frame of the
    rank's messages. For `POLL` the `url` is the path's, to be posted to.
    """

    rank: int
    url: str
    replay_url: str | None = None
    topic: str = ""
    kind: EventSourceKind = EventSourceKind.ZMQ

    @property
    def is_bound(self) -> bool:
        """Whether it is we who bind the address, and the engine that connects."""
        return "//*" in self.url


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What an endpoint says about itself.

    `engine` names the dialect. `block_size` is in tokens (1: the engine reuses single tokens, so any block size of
    ours suits it), `capacity_blocks` counts blocks of that size in the KV cache, `capacity_tokens` is the same in
    tokens and known to more engines; `slots` counts the sequences of a cache that is made of those, not of blocks.
    `reports_cached_tokens`: True, False, or None where it depends on a flag of the engine and no answer has shown it
    yet; `cached_tokens_flag` is the flag to mention then. `tokenize`: how it can be asked for token ids,
    `tokenize_path` where for those of a text; None: it cannot. `priority`: what it takes in the field of that name,
    None: it has no such field. `features`: what is on and what is not. `refuses`: fields of OpenAI's API that it
    answers with an error. `routes` are the inference paths it speaks, `salted_routes` those on which it keeps share
    groups apart by a salt; `open_paths` what else a tenant may reach there, `"POST /path"` to who pays: everything not
    in it is shut. `event_sources`: where it tells of its cache, by rank; empty where it does not say.
    `ranks` counts the data-parallel ranks behind its address, each with a cache of its own (1 where it says nothing);
    on `ranked_routes` a request's header chooses among them. `adapters` are those it was started with that are no
    models of their own, None where it does not say.
    """

    engine: str
    models: tuple[ServedModel, ...] = ()
    version: str | None = None
    block_size: int | None = None
    capacity_blocks: int | None = None
    capacity_tokens: int | None = None
    slots: int | None = None
    reports_cached_tokens: bool | None = None
    cached_tokens_flag: str | None = None
    tokenize: TokenizeForm | None = None
    tokenize_path: str = "/tokenize"
    priority: PriorityForm | None = None
    features: Features = field(default_factory=dict, hash=False)
    refuses: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    salted_routes: frozenset[str] = frozenset()
    open_paths: Mapping[str, Metering] = field(default_factory=dict, hash=False)
    event_sources: tuple[EventSourceFacts, ...] = ()
    ranks: int = 1
    ranked_routes: frozenset[str] = frozenset()
    adapters: tuple[StartedAdapter, ...] | None = None

    @property
    def supports_cache_salt(self) -> bool:
        """Whether it keeps share groups apart at all."""
        return bool(self.salted_routes)

    def seen_to_report(self) -> "EndpointFacts":
        """The same once an answer has shown that cached tokens are in `usage`."""
        fact = self.features.get(Feature.CACHED_TOKENS)
        shown = {} if fact is None else {Feature.CACHED_TOKENS: replace(fact, standing=Standing.ON)}
        return replace(self, reports_cached_tokens=True, features={**self.features, **shown})

    @property
    def has_tokenize(self) -> bool:
        """Whether it can be asked for the token ids of a chat, and so of any prompt."""
        return self.tokenize not in (None, TokenizeForm.TEXT_ONLY)


@dataclass(frozen=True, slots=True)
class AdapterSample:
    """LoRA adapters as an engine reports them: how many it keeps ready for its batch (`slots`), how many of these are
    taken (`used`), and the names of those that are at work or about to be; None is unknown."""

    slots: int | None = None
    used: int | None = None
    in_use: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Load as the engine reported it, at `fetched_at_s` of the registry's clock.

    `running` and `waiting` count requests, `kv_use` is a share from 0 to 1, `prefix_hits` and `prefix_queries` are
    counters in tokens since the engine started, `finished` is one of requests, and `steps` moves with every step of the
    engine, whatever it computes. `started_at_s` is the engine's own wall clock at its start (Unix seconds). `awake`
    names what holds a cache there now, such as the models in memory: what is missing later has lost it. What is not
    reported is None. `took_s`: the figures may be younger by as much. `rank_kv_use` is `kv_use` of each data-parallel
    rank, where there are several and all of them are known. `adapters` is None where the engine says nothing of any.
    """

    fetched_at_s: float
    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None
    prefix_hits: float | None = None
    prefix_queries: float | None = None
    started_at_s: float | None = None
    finished: float | None = None
    awake: frozenset[str] | None = None
    steps: float | None = None
    took_s: float = 0.0
    rank_kv_use: tuple[float, ...] = ()
    adapters: AdapterSample | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """Work this gateway has sent to an endpoint and that has not ended.

    `uncached_tokens` wait for or are in prefill, by the time they take (`PerfModel.queue_tokens`); `decode_tokens` are
    expected answers. Counted from dispatch.
    """

    requests: int = 0
    uncached_tokens: int = 0
    decode_tokens: int = 0


class EndpointState(StrEnum):
    """How an endpoint stands, the weightiest of what holds of it."""

    UP = "up"
    DOWN = "down"
    """It does not answer polls."""
    OPEN = "open"
    """It failed too many requests in a row, and is sent none."""
    STALLED = "stalled"
    """Requests wait there and nothing moves; it is sent none that others can take."""
    EJECTED = "ejected"
    """It does worse than its peers by far; it is sent none that others can take."""
    HALF_OPEN = "half_open"
    """It is sent a few, to see."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How an endpoint stands, why where not well, since when by the registry's clock, and how often its breaker has
    opened."""

    state: EndpointState = EndpointState.UP
    why: str | None = None
    since_s: float = 0.0
    opened: int = 0


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    """What is known of one endpoint at one instant; building decisions on it needs no I/O.

    `unhealthy_reason` is None exactly when `healthy`: its last poll was answered, and its breaker is not open. One that
    is `leaving` is none of the fleet any more, but what it holds is remembered; it is draining and not healthy. `facts`
    is None until the endpoint was reached once; facts and load of an endpoint that is down are the last ones known.
    `last_resort`: calls failed and polls do not, so what nobody else can take may be sent there all the same.
    """

    id: EndpointId
    healthy: bool
    generation: int
    unhealthy_reason: str | None = None
    draining: bool = False
    leaving: bool = False
    last_resort: bool = False
    facts: EndpointFacts | None = None
    load: LoadSample | None = None
    condition: Condition = Condition()

    def age_s(self, now_s: float) -> float | None:
        """Seconds since the load was sampled, by the same clock as the registry's; None before the first sample."""
        return None if self.load is None else now_s - self.load.fetched_at_s
