"""`prefixgate check`: the configuration; every backend asked what it is and how it counts tokens; the index."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import yaml

from backends import EndpointSnapshot, PollSettings, Registry
from backends.disaggregated import Role
from billing import LedgerUnavailable, PriceBook, reading
from billing.counting import counted
from billing.economics import CostBook
from billing.invoicing import read_seller
from billing.prices.plans_file import load_plans
from gateway.adapters import unserved_adapters
from gateway.config import Backend, Config, ConfigInvalid, admin_token, ledger_place, redis_access, ui_token
from gateway.currency_advice import Money, currency_advice
from gateway.disaggregation.advice import unpaired
from gateway.discovery_setup import looked_once
from gateway.engine_advice import FeatureFinding, advice, feature_findings
from gateway.index_report import sizes_of, sum_of
from gateway.keys_file import read_keys_file
from gateway.model_routes import routes_from, unserved
from gateway.model_texts import load_model_texts
from gateway.money_advice import unpayable, unpriced, unrated
from gateway.options import authenticator_of, endpoint_of
from gateway.proof import Effort, Proof, prove
from gateway.telemetry import Telemetry
from gateway.templates.setup import templates_of
from gateway.tracing import tracer_of
from prefix_index import DegradedReason, IndexUnavailable, SharedIndex, SharedIndexOptions, connect
from prefix_index.prompt import ModelText

_CREDENTIALS: Final = re.compile(r"(?<=[a-z])://[^/@\s]*@")
ASK_S: Final = 5.0
"""Patience with each backend."""
READ_S: Final = 600.0
"""Patience with Redis for the nodes of one shard."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one backend said, None where it did not. `sources` list it; `advice` is what would help, empty where nothing
    is missing; `features` are those that are not known to be on."""

    endpoint_id: str
    sources: str
    healthy: bool
    advice: str
    engine: str | None = None
    models: tuple[str, ...] | None = None
    block_size: int | None = None
    capacity_tokens: int | None = None
    features: tuple[FeatureFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexFinding:
    """What the index holds, in words, and every broken invariant."""

    stored: str
    broken: list[str]


def effective_yaml(config: Config) -> str:
    """The configuration in force, as YAML; secrets are not in it, only where they are."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return _CREDENTIALS.sub("://***@", text)


def check_files(config: Config, environment: Mapping[str, str]) -> dict[str, ModelText]:
    """Read the files that `serve` would read at its start, and the seller's; raises one of `STARTUP_ERRORS`.

    Returns the tokenizers among them, by model. The ledger itself is not opened, since a running gateway may own it;
    only its folder is looked for.
    """
    authenticator_of(config)
    admin_token(config)
    ui_token(config)
    if config.prices_file is not None:
        PriceBook.load(config.prices_file)
    if config.templates_dir is not None:
        templates_of(config, Telemetry())
    if config.costs_file is not None:
        CostBook.load(config.costs_file)
    if config.plans_file is not None:
        load_plans(config.plans_file)
    if config.invoicing_file is not None:
        read_seller(config.invoicing_file)
    if config.index.redis_url is not None:
        connect(config.index.redis_url, redis_access(config.index, environment))  # on use only
    tracer_of(config, environment, Telemetry())
    texts = load_model_texts(config)
    _check_ledger(config, environment)
    return texts


def check_start(config: Config, environment: Mapping[str, str]) -> None:
    """What `check` refuses, refused before anything serves, with the same text; raises one of `STARTUP_ERRORS`.

    Files are read once more at the start itself: tenths of a second for a large tokenizer.
    """
    check_files(config, environment)
    for one in config.backends:
        endpoint_of(one, environment)


def check_currencies(config: Config, now: datetime) -> Sequence[str]:
    """What may be a slip in the currencies of prices, budgets and plans, whose files `check_files` has read."""
    if config.prices_file is None:
        return ()
    book = PriceBook.load(config.prices_file)
    plans = None if config.plans_file is None else load_plans(config.plans_file)
    keys = None if config.keys_file is None else read_keys_file(config.keys_file)
    return currency_advice(Money(book, keys, plans, config.quota.unpriced), now)


def check_amounts(config: Config, findings: Sequence[Finding], now: datetime) -> Sequence[str]:
    """What backends serve without a price or a rate in the files that `check_files` has read."""
    said: list[str] = []
    keys = None if config.keys_file is None else read_keys_file(config.keys_file)
    if config.prices_file is not None:
        served = {model for one in findings for model in one.models or ()}
        said += unpriced(PriceBook.load(config.prices_file), served, now)
    elif keys is not None and config.quota.unpriced == "deny":
        said += unpayable(keys)
    if config.costs_file is not None:
        said += unrated(CostBook.load(config.costs_file), {one.endpoint_id for one in findings}, now)
    return said


def _check_ledger(config: Config, environment: Mapping[str, str]) -> None:
    """A file's folder must be there; a server must answer, and its ledger, where it has one, can be read."""
    place = ledger_place(config, environment)
    if isinstance(place, str):
        try:
            with reading(place):
                return
        except LedgerUnavailable as error:
            raise ConfigInvalid(f"ledger.url: {error.why}") from None
    folder = place.absolute().parent
    if not folder.is_dir():
        raise ConfigInvalid(f"ledger.path: there is no folder {folder}")


async def ask_backends(
    config: Config,
    environment: Mapping[str, str],
    texts: Mapping[str, ModelText] | None,
    effort: Effort = Effort(),  # noqa: B008 - it is frozen
) -> tuple[list[Finding], list[Proof], list[str]]:
    """Ask the sources of endpoints, then every backend, all at once; none of either may take longer than `ASK_S`.

    Then those that are up prove our tokens: `texts` are the local tokenizers, `effort` the bounds; None leaves it out.
    Last come words on what could not be found or used. Raises `ConfigInvalid`.
    """
    roles: dict[str, Role] = {}

    def joins(backend: Backend) -> None:
        roles[backend.name] = Role(backend.role)

    async with Registry((), time.monotonic, settings=PollSettings(deadline_s=ASK_S)) as registry:
        discovering = await looked_once(config, environment, registry, time.monotonic, ASK_S, joins)
        await registry.detect_all(deadline_s=ASK_S + 1)
        endpoints = registry.snapshot()
        configs = [registry.config_of(endpoint.id) for endpoint in endpoints]
    proofs = [] if texts is None else await prove(list(zip(configs, endpoints, strict=True)), texts, effort)
    telling = {one.endpoint_id for one in proofs if one.told_cached}
    findings = []
    for endpoint in endpoints:
        report = discovering.report_of(endpoint.id)
        seen = _seen_to_report(endpoint) if endpoint.id in telling else endpoint
        findings.append(_finding(seen, config, () if report is None else report.sources))
    silent = [f"{name}: it said nothing for {ASK_S:g} s" for name in discovering.silent()]
    lost = [*unserved(routes_from(config.model_routes), endpoints), *unpaired(endpoints, roles)]
    lost += unserved_adapters(config.adapters.known, endpoints)
    return findings, proofs, discovering.problems() + silent + lost


async def check_index(config: Config, environment: Mapping[str, str]) -> IndexFinding:
    """Walk the whole index at the configured server; no gateway need run.

    The server answers nobody else while it hands out a shard. Raises `ConfigInvalid` where no server is configured,
    `IndexUnavailable`, and what a wrong address raises.
    """
    settings = config.index
    if settings.redis_url is None:
        raise ConfigInvalid(
            "there is no index.redis_url, and a private Valkey belongs to its gateway: GET /admin/index/check asks it"
        )
    async with connect(settings.redis_url, redis_access(settings, environment)) as redis:
        options = SharedIndexOptions(shards=settings.shards)
        index = SharedIndex(redis, pool=settings.pool, replica="check", options=options)
        try:
            shards = await index.census()
        except IndexUnavailable as failure:
            if failure.reason is DegradedReason.TIMEOUT and settings.redis_url.startswith("rediss"):
                raise IndexUnavailable(f"{failure.why} (does it speak TLS?)", failure.reason) from failure
            raise
        broken = await index.check(READ_S)
    sums = sum_of(map(sizes_of, shards))
    pool = f"pool {settings.pool}, {counted(settings.shards, 'shard')}"
    return IndexFinding(
        f"{pool}: {counted(sums.nodes, 'node')} of {counted(sums.blocks, 'block')}, "
        f"{counted(sums.seats_used, 'claim')} of holders",
        broken,
    )


def _seen_to_report(endpoint: EndpointSnapshot) -> EndpointSnapshot:
    return endpoint if endpoint.facts is None else replace(endpoint, facts=endpoint.facts.seen_to_report())


def _finding(endpoint: EndpointSnapshot, config: Config, sources: Sequence[str]) -> Finding:
    facts, listed_by = endpoint.facts, ", ".join(sources)
    if facts is None:
        return Finding(endpoint.id, listed_by, False, endpoint.unhealthy_reason or "did not answer")
    return Finding(
        endpoint_id=endpoint.id,
        sources=listed_by,
        healthy=endpoint.healthy,
        engine=f"{facts.engine} {facts.version or ''}".strip(),
        models=tuple(model.id for model in facts.models),
        block_size=facts.block_size,
        capacity_tokens=facts.capacity_tokens,
        advice="; ".join(advice(endpoint, config)),
        features=feature_findings(endpoint, config),
    )
