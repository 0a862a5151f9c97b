"""Limits, who is let in, and the watch over the keys file, composed from the configuration."""

import time
from collections.abc import Callable
from functools import partial

from billing import Down, QuotaOptions, QuotaRedis, Quotas
from billing.prices.book import Prices
from billing.quotas.spending import spent_micro
from billing.quotas.types import Purse
from gateway.admission import Admission, AdmissionLimits
from gateway.config import Config, ledger_place, salt_secrets
from gateway.edge.auth import Authenticator
from gateway.exchange import Clocks
from gateway.fleet import Fleet
from gateway.keys_watch import KeysWatch, WatchedKeys
from gateway.limits import LimitOptions, Limits
from gateway.salt_rotation import SaltRotation
from gateway.salt_secrets import ClientSalt
from gateway.telemetry import Telemetry
from prefix_index import Carrier


def admission_of(config: Config, telemetry: Telemetry) -> Admission:
    """Who is let in to this process."""
    limits = config.limits
    takes_on = AdmissionLimits(limits.concurrent_requests, limits.queue_requests, limits.queue_s, limits.buffered_bytes)
    return Admission(takes_on, lambda why: telemetry.pressure.shed(why.value).inc())


def quotas_of(config: Config, carrier: Carrier | None, prices: Prices, replica: str) -> Quotas:
    """The counters of this replica, in Redis where there is one."""
    quota, shared = config.quota, None
    if carrier is not None:
        shared = QuotaRedis(
            carrier,
            config.index.pool,
            ttl_ms=int(quota.hold_s * 1000),
            deadline_s=quota.deadline_ms / 1000,
        )

    def spent(tenant_id: str, purse: Purse) -> int:
        return spent_micro(ledger_place(config), tenant_id, purse, prices.currency)

    options = QuotaOptions(when_down=Down(quota.limits_down), ttl_s=quota.hold_s)
    return Quotas(shared, spent, replica=replica, options=options)


def limits_of(config: Config, quotas: Quotas, prices: Prices, telemetry: Telemetry, clocks: Clocks) -> Limits:
    """What asks them for each request."""
    return Limits(
        quotas,
        prices,
        LimitOptions(config.quota.unpriced, config.quota.default_output_tokens),
        telemetry.limits,
        wall=clocks.wall,
        monotonic=clocks.monotonic,
    )


def keys_watch_of(config: Config, authenticator: Authenticator, fleet: Fleet, telemetry: Telemetry) -> KeysWatch:
    """The watch over the keys file; it has nothing to do where there is none."""
    watched = None
    if config.keys_file is not None:
        secrets = salt_secrets(config)
        watched = WatchedKeys(
            config.keys_file, lambda: secrets.at(time.time()), config.quota.cached_token_weight, config.keys_poll_s
        )
    changed = partial(_groups_changed, config, authenticator, fleet)
    return KeysWatch(authenticator, watched, telemetry.limits, changed)


def salt_rotation_of(
    config: Config, authenticator: Authenticator, rebuilt: Callable[[], Authenticator], changed: Callable[[], None]
) -> SaltRotation:
    """Has the next salt secret take over; it has nothing to do where there is none. The share groups stay."""
    return SaltRotation(authenticator, salt_secrets(config), rebuilt, changed, time.time)


def needs_salt(config: Config, authenticator: Authenticator) -> bool:
    """Whether engines must keep share groups apart, or clients in one."""
    divided = len(authenticator.share_groups) > 1 or config.client_salt is ClientSalt.COMBINE
    return divided and config.isolation == "salt"


def _groups_changed(config: Config, authenticator: Authenticator, fleet: Fleet) -> None:
    fleet.keep_groups_apart(needed=needs_salt(config, authenticator))
