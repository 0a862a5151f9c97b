"""The whole configuration: one frozen tree, from a YAML file, then `PREFIXGATE_*`, then flags.

    prefixgate.yaml  <  PREFIXGATE_LISTEN__PORT=9000  <  --port 9000

Unknown keys are errors. This is the only module that reads the environment. Secrets are named by file or variable
(`api_key_file`, `api_key_env`) and never printed. Each field's description is its documentation: `docs/config.md`
lists them and a test compares.
"""

import json
import os
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from gateway.strict_yaml import load_yaml
from prefix_index import RedisAccess, read_address
from prefix_index.errors import EventSourceInvalid
from prefix_index.kv_events.sources import EventSource

ENV_PREFIX = "PREFIXGATE_"
_ENV_NOT_CONFIG = frozenset({"PREFIXGATE_CONFIG", "PREFIXGATE_CACHE_DIR", "PREFIXGATE_REFERENCE_API_KEY"})
"""Of the command line and of the reference engine."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of tenants, keys, share groups and backends: safe in headers, labels, URLs and YAML."""

GiB = 1 << 30
PositiveFloat = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]


class ConfigInvalid(Exception):
    """The configuration cannot be used; the text names each key and what is wrong with it."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Listen(_Section):
    """Where the gateway listens."""

    host: str = Field("127.0.0.1", description="Address to bind. Use 0.0.0.0 only with a keys file.")
    port: int = Field(8080, ge=0, le=65535, description="Port to bind; 0 takes a free one and prints it.")


class KvEvents(_Section):
    """Where one endpoint publishes what its KV cache gains and loses."""

    mode: Literal["auto", "poll", "off"] = Field(
        "auto",
        description="`auto` follows the events at `url`, else where the engine says it publishes; `poll` fetches them "
        "over HTTP (TensorRT-LLM); `off` never.",
    )
    url: str | None = Field(
        None, description="ZMQ address (tcp:// or ipc://). With `*` the gateway binds and the engine connects."
    )
    replay_url: str | None = Field(None, description="ZMQ address at which the engine repeats its latest events.")
    topic: str = Field("", description="Topic that the engine publishes under, whole; every topic where it is empty.")
    ranks: PositiveInt = Field(1, description="Data-parallel ranks; each has the port after the one before.")

    @property
    def sources(self) -> list[EventSource]:
        """The publisher of each rank, none without `url`."""
        first = self.url and EventSource(self.url, self.replay_url, self.topic)
        return [first.of_rank(rank) for rank in range(self.ranks)] if first else []

    @model_validator(mode="after")
    def _can_be_followed(self) -> "KvEvents":
        try:
            _ = self.sources
        except EventSourceInvalid as invalid:
            raise ValueError(str(invalid)) from None
        return self


class Backend(_Section):
    """One endpoint: a model server with one KV cache of its own."""

    url: str = Field(description="Base URL of the server, http or https; a path in it is kept.")
    id: str | None = Field(
        None, pattern=NAME_PATTERN, description="Name in metrics, headers and the ledger; default: host and port."
    )
    api_key_file: Path | None = Field(None, description="File with the key this server wants.")
    api_key_env: str | None = Field(None, description="Environment variable with the key this server wants.")
    ca_file: Path | None = Field(None, description="Certificate authorities to trust in place of the system's.")
    cert_file: Path | None = Field(None, description="Client certificate for mutual TLS.")
    key_file: Path | None = Field(None, description="Private key of the client certificate.")
    prefill_tokens_per_s: PositiveFloat | None = Field(
        None, description="Prior for the prefill speed of this server, tokens a second."
    )
    kv_events: KvEvents = Field(KvEvents(), description="Where the server publishes the events of its KV cache.")

    @property
    def name(self) -> str:
        """The endpoint's id."""
        place = re.sub(r"^[^/]*@", "", self.url.split("://", 1)[-1])  # credentials are refused, and not repeated
        return self.id or re.sub(r"[^A-Za-z0-9._-]+", "-", place.rstrip("/"))


class Model(_Section):
    """Where the tokenizer and chat template of a served model are."""

    tokenizer: Path = Field(
        description="Directory with tokenizer.json and tokenizer_config.json, or a tokenizer.json, or a .tiktoken file."
    )
    encoding: Literal["cl100k_base", "o200k_base", "o200k_harmony"] | None = Field(
        None, description="Rules of a .tiktoken file whose name does not say them."
    )
    chat_template: Path | None = Field(None, description="Jinja file to use in place of the directory's own.")
    renderer: Literal["vllm", "sglang", "llamacpp", "tgi", "trtllm", "plain"] | None = Field(
        None, description="Whose way of reading messages to follow; default: that of the engine that serves the model."
    )
    timezone: str | None = Field(
        None, description="Time zone of the engine, for templates that write the date; default: the gateway's own."
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                ZoneInfo(name)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise ValueError(f"there is no time zone {name!r} here") from None
        return name


class Index(_Section):
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
        60.0, description="How long a prompt that was sent counts as cached before the engine has said so, seconds."
    )
    max_bytes: int = Field(4 * GiB, ge=1 << 20, description="Most memory of the index in Redis, all shards, bytes.")
    block_size: PositiveInt | None = Field(
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


class Ledger(_Section):
    """The usage ledger."""

    path: Path = Field(Path("prefixgate.db"), description="SQLite file; one gateway process owns it.")
    sync: Literal["normal", "disk"] = Field(
        "normal", description="`normal` survives the death of the gateway, `disk` also a power loss."
    )
    chain_tokens: Annotated[int, Field(ge=16)] | None = Field(
        None, description="Keep a hash for each so many tokens of a prompt, such as 256, for replays; default: none."
    )


class Limits(_Section):
    """Sizes and patience."""

    max_body_bytes: PositiveInt = Field(16 * 1024 * 1024, description="Longest request body, bytes.")
    connect_s: PositiveFloat = Field(2.0, description="Longest wait for a connection to an endpoint, seconds.")
    first_byte_s: PositiveFloat = Field(
        600.0, description="Longest wait for the first bytes of an answer, prefill included, seconds."
    )
    idle_s: PositiveFloat = Field(120.0, description="Longest silence inside an answer, seconds.")
    drain_s: PositiveFloat = Field(30.0, description="How long a stopping gateway waits for open answers, seconds.")
    connections_per_endpoint: PositiveInt = Field(1024, description="Most connections to one endpoint.")


class Scheduling(_Section):
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
    prefill_tokens_per_s: PositiveFloat = Field(8000.0, description="Prior for the prefill speed, tokens a second.")
    base_s: Annotated[float, Field(ge=0)] = Field(0.01, description="Prior for the fixed cost of a prefill, seconds.")
    quad_s_per_token2: Annotated[float, Field(ge=0)] = Field(1.2e-9, description="Prior for attention's part, seconds.")
    itl_s: Annotated[float, Field(ge=0)] = Field(0.02, description="Prior for the time between two tokens, seconds.")


class Config(_Section):
    """The effective configuration."""

    listen: Listen = Field(Listen(), description="Where the gateway listens.")
    backends: tuple[Backend, ...] = Field((), description="The model servers.")
    models: dict[str, Model] = Field(default_factory=dict, description="Tokenizers by served model name.")
    keys_file: Path | None = Field(None, description="Tenants and their API keys; without it everyone may call.")
    salt_secret_file: Path | None = Field(
        None, description="Secret mixed into cache salts; the same on every replica. Recommended with a keys file."
    )
    isolation: Literal["salt", "none"] = Field(
        "salt",
        description="`salt` keeps share groups apart in the engines' caches; `none` allows engines without a salt.",
    )
    index: Index = Field(Index(), description="The prefix index.")
    ledger: Ledger = Field(Ledger(), description="The usage ledger.")
    admin_token_file: Path | None = Field(None, description="Token of the admin API; without it there is none.")
    prices_file: Path | None = Field(None, description="Price book; without it usage is recorded unpriced.")
    scheduling: Scheduling = Field(Scheduling(), description="How an endpoint is chosen.")
    limits: Limits = Field(Limits(), description="Sizes and patience.")
    poll_interval_s: PositiveFloat = Field(
        2.0, description="How often each endpoint's health and load are read, seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe log line shown.")

    @model_validator(mode="after")
    def _unique_backends(self) -> "Config":
        names = [backend.name for backend in self.backends]
        doubles = sorted({name for name in names if names.count(name) > 1})
        if doubles:
            raise ValueError(f"two backends are called {', '.join(doubles)}: give them ids")
        return self

    @model_validator(mode="after")
    def _events_of_one_engine_each(self) -> "Config":
        """Of two engines at one address only their topics tell which one speaks."""
        told = [one for one in self.backends if one.kv_events.url and one.kv_events.mode == "auto"]
        for one, other in combinations(told, 2):
            url, topics = one.kv_events.url, {one.kv_events.topic, other.kv_events.topic}
            if url == other.kv_events.url and (len(topics) == 1 or "" in topics):
                names = f"{one.name} and {other.name}"
                raise ValueError(f"{names} share the kv_events.url {url}: give each a URL or a topic of its own")
        return self


def load_config(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Config:
    """Read the file, lay the environment and then the flags over it, and check all of it.

    `flags` maps dotted keys ("listen.port") to values; None means not given. Raises `ConfigInvalid`.
    """
    tree: dict[str, Any] = _from_file(path) if path is not None else {}
    variables: dict[tuple[str, ...], str] = {}
    for name, text in environment.items():
        if name.startswith(ENV_PREFIX) and name not in _ENV_NOT_CONFIG:
            keys = name.removeprefix(ENV_PREFIX).lower().split("__")
            _put(tree, keys, _from_text(text))
            variables[tuple(keys)] = name
    for dotted, value in flags.items():
        if value is not None:
            _put(tree, dotted.split("."), value)
            variables.pop(tuple(dotted.split(".")), None)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigInvalid("; ".join(_complaint(one, variables) for one in error.errors())) from None


def _complaint(error: ErrorDetails, variables: Mapping[tuple[str, ...], str]) -> str:
    """The key, what is wrong with it, and the variable that it came from, if from one."""
    keys = tuple(map(str, error["loc"]))
    what = "unknown key" if error["type"] == "extra_forbidden" else error["msg"].removeprefix("Value error, ")
    sources = [variables[keys[:length]] for length in range(1, len(keys) + 1) if keys[:length] in variables]
    where = f" (from the variable {sources[-1]})" if sources else ""
    return f"{'.'.join(keys) or 'config'}: {what}{where}"


def is_name(text: str) -> bool:
    """Whether a text may name a tenant, a key or a backend."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def process_environment() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def backend_key(backend: Backend, environment: Mapping[str, str]) -> str | None:
    """The key that a backend wants, from its file or variable. Raises `ConfigInvalid` where it is missing."""
    return _secret(backend.api_key_file, backend.api_key_env, f"backend {backend.name}", environment)


def redis_access(index: Index, environment: Mapping[str, str]) -> RedisAccess:
    """Who we are to Redis, passwords read. Raises `ConfigInvalid` where one is missing."""
    return RedisAccess(
        username=index.redis_username,
        password=_secret(index.redis_password_file, index.redis_password_env, "index.redis_password", environment),
        sentinel_username=index.sentinel_username,
        sentinel_password=_secret(
            index.sentinel_password_file, index.sentinel_password_env, "index.sentinel_password", environment
        ),
        ca_file=index.redis_ca_file,
        cert_file=index.redis_cert_file,
        key_file=index.redis_key_file,
    )


def salt_secret(config: Config) -> bytes:
    """The secret behind the cache salts; empty where none is configured. Raises `ConfigInvalid`."""
    return b"" if config.salt_secret_file is None else _secret_file(config.salt_secret_file).strip()


def admin_token(config: Config) -> str | None:
    """The token of the admin API, None where there is none. Raises `ConfigInvalid`; an empty token is one mistake."""
    if config.admin_token_file is None:
        return None
    token = _secret_file(config.admin_token_file).decode(errors="replace").strip()
    if not token:
        raise ConfigInvalid(f"the admin token at {config.admin_token_file} is empty")
    return token


def _secret(file: Path | None, variable: str | None, whose: str, environment: Mapping[str, str]) -> str | None:
    """A secret from the one place or the other, None where there is neither."""
    if file is not None:
        return _secret_file(file).decode(errors="replace").strip()
    if variable is not None:
        if variable not in environment:
            raise ConfigInvalid(f"{whose}: the variable {variable} is not set")
        return environment[variable]
    return None


def _secret_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"cannot read the secret at {path}: {error.strerror}") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        tree = load_yaml(path.read_text())
    except OSError as error:
        raise ConfigInvalid(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} is not valid YAML: {error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigInvalid(f"{path} must hold a mapping at its top")
    return cast("dict[str, Any]", tree)


def _from_text(text: str) -> object:
    """JSON where the variable holds an object or a list, else the text itself; pydantic converts numbers."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


def _put(tree: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigInvalid(f"{key} is set both as a value and as a section")
        tree = inner
    tree[keys[-1]] = value
