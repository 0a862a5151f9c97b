"""The whole configuration: one frozen tree, from a YAML file, then `PREFIXGATE_*`, then flags.

    prefixgate.yaml  <  PREFIXGATE_LISTEN__PORT=9000  <  --port 9000

Unknown keys are errors. This is the only module that reads the environment. Secrets are named by file or variable
(`api_key_file`, `api_key_env`) and never printed. The sections are in `config_sections.py`.
"""

import json
import os
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import AwareDatetime, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from billing.postgres_address import postgres_url
from gateway.adapter_config import Adapters
from gateway.backend_sections import Backend, KvEvents, Model
from gateway.config_keys import meant
from gateway.config_sections import (
    NAME_PATTERN,
    Billing,
    FixRule,
    Index,
    Ledger,
    Limits,
    Listen,
    PositiveFloat,
    Quota,
    Scheduling,
    Section,
    Timing,
    Tracing,
)
from gateway.continuation_config import Continuation
from gateway.disaggregation_config import Disaggregation
from gateway.discovery_sections import Discovery
from gateway.epp_config import Epp
from gateway.health_config import Health, Outliers
from gateway.queue_config import Queue
from gateway.routes_config import ModelRoute, refuse_unclear
from gateway.salt_secrets import ClientSalt, SaltSecrets
from gateway.strict_yaml import complaint_of, load_yaml
from gateway.ui_config import LEAST_TOKEN_CHARACTERS, Ui
from prefix_index import RedisAccess

__all__ = [
    "ENV_PREFIX",
    "Adapters",
    "Backend",
    "Billing",
    "Config",
    "ConfigInvalid",
    "Continuation",
    "Disaggregation",
    "Discovery",
    "Epp",
    "FixRule",
    "Index",
    "KvEvents",
    "Ledger",
    "Limits",
    "Listen",
    "Model",
    "ModelRoute",
    "Queue",
    "Quota",
    "Scheduling",
    "Timing",
    "Tracing",
    "Ui",
    "admin_token",
    "backend_key",
    "is_name",
    "ledger_place",
    "load_config",
    "process_environment",
    "redis_access",
    "salt_secret",
    "salt_secrets",
    "tracing_headers",
    "ui_token",
]

ENV_PREFIX = "PREFIXGATE_"
_ENV_NOT_CONFIG = frozenset({"PREFIXGATE_CONFIG", "PREFIXGATE_CACHE_DIR", "PREFIXGATE_REFERENCE_API_KEY"})
"""Of the command line and of the reference engine."""


class ConfigInvalid(Exception):
    """The configuration cannot be used; the text names each key and what is wrong with it."""


class Config(Section):
    """The effective configuration."""

    listen: Listen = Field(Listen(), description="Where the gateway listens.")
    workers: Annotated[int, Field(ge=1, le=256)] = Field(1, description="Processes that serve, as one gateway.")
    supervised: bool = Field(
        False, description="Run a supervisor for one worker too, so that SIGHUP takes over a changed configuration."
    )
    backends: tuple[Backend, ...] = Field((), description="The model servers.")
    discovery: Discovery = Field(Discovery(), description="Where further model servers are found.")
    models: dict[str, Model] = Field(default_factory=dict, description="Tokenizers by served model name.")
    adapters: Adapters = Field(Adapters(), description="LoRA adapters.")
    model_routes: tuple[ModelRoute, ...] = Field((), description="Names that clients use for models.")
    keys_file: Path | None = Field(None, description="Tenants and their API keys; without it everyone may call.")
    keys_poll_s: PositiveFloat = Field(1.0, description="How often the keys file is looked at for changes, seconds.")
    salt_secret_file: Path | None = Field(
        None, description="Secret mixed into cache salts; the same on every replica. Recommended with a keys file."
    )
    salt_secret_next_file: Path | None = Field(
        None, description="Secret that takes over from `salt_secret_file`; the same on every replica."
    )
    salt_secret_next_from: AwareDatetime | None = Field(
        None, description="When it does, with a time zone: on all replicas that have it at once."
    )
    client_salt: ClientSalt = Field(
        ClientSalt.STRIP,
        description="What becomes of `cache_salt` in a request: taken out, combined with the group's, or refused.",
    )
    isolation: Literal["salt", "none"] = Field(
        "salt",
        description="`salt` keeps share groups apart in the engines' caches; `none` allows engines without a salt.",
    )
    index: Index = Field(Index(), description="The prefix index.")
    ledger: Ledger = Field(Ledger(), description="The usage ledger.")
    billing: Billing = Field(Billing(), description="What bills do beside adding up.")
    admin_token_file: Path | None = Field(None, description="Token of the admin API; without it there is none.")
    prices_file: Path | None = Field(None, description="Price book; without it usage is recorded unpriced.")
    costs_file: Path | None = Field(None, description="What the endpoints cost, YAML; for the operator's reports.")
    plans_file: Path | None = Field(None, description="Plans and who has them, YAML; without it nobody has one.")
    invoicing_file: Path | None = Field(None, description="Seller, buyers and taxes of invoices, YAML.")
    scheduling: Scheduling = Field(Scheduling(), description="How an endpoint is chosen.")
    continuation: Continuation = Field(Continuation(), description="What becomes of a stream whose endpoint dies.")
    disaggregation: Disaggregation = Field(
        Disaggregation(), description="How requests are split between prefill and decode endpoints."
    )
    health: Health = Field(Health(), description="What becomes of endpoints that fail, are silent, or do not move.")
    outliers: Outliers = Field(Outliers(), description="Endpoints that do worse than their peers by far.")
    queue: Queue = Field(Queue(), description="How requests wait while all endpoints are full.")
    quota: Quota = Field(Quota(), description="How limits and budgets are counted.")
    limits: Limits = Field(Limits(), description="Sizes and patience.")
    epp: Epp = Field(Epp(), description="The endpoint picker, `prefixgate epp`, for gateways built on Envoy.")
    poll_interval_s: PositiveFloat = Field(
        2.0, description="How often each endpoint's health and load are read, seconds."
    )
    fixes: tuple[FixRule, ...] = Field((), description="Requests that are changed on their way; the first that fits.")
    templates_dir: Path | None = Field(None, description="Folder of templates that requests call; without it none.")
    templates_poll_s: PositiveFloat = Field(1.0, description="How often that folder is looked at for changes, seconds.")
    ui: Ui = Field(Ui(), description="The dashboard.")
    timing: Timing = Field(Timing(), description="Where the time of requests goes.")
    tracing: Tracing = Field(Tracing(), description="Spans of requests, for an OpenTelemetry collector.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe log line shown.")

    @model_validator(mode="after")
    def _unique_backends(self) -> "Config":
        names = [backend.name for backend in self.backends]
        doubles = sorted({name for name in names if names.count(name) > 1})
        if doubles:
            raise ValueError(f"two backends are called {', '.join(doubles)}: give them ids")
        refuse_unclear(self.model_routes)
        return self

    @model_validator(mode="after")
    def _next_secret_has_its_time(self) -> "Config":
        if (self.salt_secret_next_file is None) != (self.salt_secret_next_from is None):
            raise ValueError("salt_secret_next_file and salt_secret_next_from need each other")
        return self

    @model_validator(mode="after")
    def _waiting_leaves_places(self) -> "Config":
        """Who waits for an endpoint has been let in: one class must not take the places of all the others."""
        waiting, places = sum(one.max_requests for one in self.queue.classes), self.limits.concurrent_requests
        bounded = any(one.max_running or one.max_queued_tokens or one.max_kv_use for one in self.backends)
        if (bounded or self.queue.max_running) and waiting >= places:
            raise ValueError(
                f"{waiting} requests may wait in the classes of the queue, and limits.concurrent_requests lets in "
                f"{places}: let fewer wait, or more in"
            )
        return self

    @model_validator(mode="after")
    def _workers_can_be_several(self) -> "Config":
        if self.workers > 1 and self.index.redis_url is None and not self.index.embedded:
            raise ValueError("several workers share the index: set index.redis_url, or let index.embedded be true")
        for one in self.backends if self.workers > 1 else ():
            if any(source.is_bound for source in one.kv_events.sources):
                raise ValueError(
                    f"kv_events.url of {one.name}: only one of several workers could bind it; let the engine"
                )
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
    sources = [variables[keys[:length]] for length in range(1, len(keys) + 1) if keys[:length] in variables]
    where = f" (from the variable {sources[-1]})" if sources else ""
    near = meant(Config, error["loc"]) if error["type"] == "extra_forbidden" else None
    guess = f", did you mean {near}?" if near else ""
    return f"{'.'.join(keys) or 'config'}: {complaint_of(error)}{guess}{where}"


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


def ledger_place(config: Config, environment: Mapping[str, str] | None = None) -> Path | str:
    """Where the ledger is: a path, or a URL that holds the password. Raises `ConfigInvalid` where that is missing."""
    ledger = config.ledger
    if ledger.url is None:
        return ledger.path
    given = (ledger.password_file, ledger.password_env, "ledger.password")
    password = _secret(*given, process_environment() if environment is None else environment)
    url = postgres_url(ledger.url)
    return (url if password is None else url.set(password=password)).render_as_string(hide_password=False)


def tracing_headers(tracing: Tracing, environment: Mapping[str, str]) -> str | None:
    """Header fields for the collector of spans, as they are written. Raises `ConfigInvalid` where they are missing."""
    return _secret(tracing.headers_file, tracing.headers_env, "tracing.headers", environment)


def salt_secret(config: Config) -> bytes:
    """The secret behind the cache salts; empty where none is configured. Raises `ConfigInvalid`."""
    return b"" if config.salt_secret_file is None else _salt_secret_in(config.salt_secret_file)


def salt_secrets(config: Config) -> SaltSecrets:
    """The same with the one that takes over from it, where one does. Raises `ConfigInvalid`."""
    file, from_ = config.salt_secret_next_file, config.salt_secret_next_from
    if file is None or from_ is None:
        return SaltSecrets(salt_secret(config))
    return SaltSecrets(salt_secret(config), _salt_secret_in(file), from_.timestamp())


def _salt_secret_in(path: Path) -> bytes:
    secret = _secret_file(path).strip()
    if not secret:  # whoever can send to an engine could make salts of no secret
        raise ConfigInvalid(f"the salt secret at {path} is empty")
    return secret


def admin_token(config: Config) -> str | None:
    """The token of the admin API, None where there is none. Raises `ConfigInvalid`; an empty token is one mistake."""
    if config.admin_token_file is None:
        return None
    token = _secret_file(config.admin_token_file).decode(errors="replace").strip()
    if not token:
        raise ConfigInvalid(f"the admin token at {config.admin_token_file} is empty")
    return token


def ui_token(config: Config) -> str | None:
    """The token of the dashboard, None where there is none. Raises `ConfigInvalid`, also where it is the admin's."""
    path = config.ui.token_file
    if path is None:
        return None
    token = _secret_file(path).decode(errors="replace").strip()
    if len(token) < LEAST_TOKEN_CHARACTERS:
        raise ConfigInvalid(f"the token at {path} can be guessed: give it {LEAST_TOKEN_CHARACTERS} characters or more")
    if token == admin_token(config):
        raise ConfigInvalid(f"the token at {path} is the admin token: who looks must not be able to change anything")
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
