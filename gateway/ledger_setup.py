"""The ledger as the configuration describes it, and its metrics."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from prometheus_client import CollectorRegistry, Gauge

from billing import Ledger, LedgerOptions, open_ledger
from billing.ledger_client import ledger_of_owner
from billing.prices.book import Prices
from gateway.config import Config, ledger_place
from gateway.metrics import counter_read
from gateway.team.member import Team


@asynccontextmanager
async def ledger_of(
    config: Config,
    environment: Mapping[str, str],
    prices: Prices,
    registry: CollectorRegistry,
    team: Team | None = None,
) -> AsyncIterator[Ledger]:
    """The configured ledger, open while inside, with its metrics; a team's is its supervisor's.

    Raises `LedgerUnavailable`, `ConfigInvalid`.
    """
    async with (
        owned_ledger(config, environment, prices) if team is None else ledger_of_owner(team.ledger_line) as ledger
    ):
        measure(ledger, registry)
        yield ledger


def owned_ledger(config: Config, environment: Mapping[str, str], prices: Prices) -> AbstractAsyncContextManager[Ledger]:
    """The configured ledger, this process being its owner. Raises `ConfigInvalid`; its entry `LedgerUnavailable`."""
    place = ledger_place(config, environment)
    return open_ledger(place, prices, sync=config.ledger.sync, options=ledger_options(config))


def ledger_options(config: Config) -> LedgerOptions:
    """What the ledger does beside writing."""
    ledger = config.ledger
    return LedgerOptions(
        takeover_s=ledger.takeover_s,
        spool=ledger.spool if ledger.on_ledger_down == "spool" else None,
        spool_most_bytes=ledger.spool_max_bytes,
    )


def ledger_trouble(ledger: Ledger) -> str | None:
    """Why usage is not written as it should be; None where it is."""
    spool = ledger.spool
    if not ledger.healthy:
        return "usage cannot be written; requests are refused"
    if spool is None:
        return None
    if spool.is_away or spool.records:
        return f"the ledger is away; {spool.records} records wait on the local disk"
    if spool.refused:
        return f"the ledger refused {spool.refused} records that had waited; they are kept beside the spool"
    return None


def measure(ledger: Ledger, registry: CollectorRegistry) -> None:
    """Metrics of a ledger that is open; a registry has them once."""
    for name, what, read in (
        ("spool_records", "Records that wait on the local disk for the ledger.", lambda: _spool(ledger)[0]),
        ("spool_bytes", "Bytes of the local disk that they take.", lambda: _spool(ledger)[1]),
        ("spool_refused", "Records that had waited and that the ledger refused.", lambda: _spool(ledger)[2]),
    ):
        Gauge(f"prefixgate_ledger_{name}", what, registry=registry).set_function(read)
    for name, what, count in (
        ("settled_twice", "Settlements of requests that had one.", lambda: ledger.settled_twice),
        ("interrupted", "Requests that a gateway left open and this one closed.", lambda: ledger.interrupted),
    ):
        counter_read(registry, f"prefixgate_ledger_{name}", what, count)


def _spool(ledger: Ledger) -> tuple[int, int, int]:
    spool = ledger.spool
    return (0, 0, 0) if spool is None else (spool.records, spool.size_bytes, spool.refused)
