"""Ours, with everything on, and whether it worked as it should while it was measured.

Keys with limits and a budget, prices, salts, metrics, a log line a request, the ledger on disk, the index and the
counters of limits in a Valkey of its own beside it, the model's tokenizer and template.
"""

import hashlib
import json
import secrets
import sqlite3
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from backends.dialects.metrics import scan
from bench.overhead_prompts import MODEL, Ask
from bench.overhead_routers import HOST, Router, Site
from bench.result import ROOT

NAME: Final = "prefixgate"
LEDGER: Final = "ledger.db"
_TENANT: Final = "acme"
_LIMITS: Final = {"requests_per_minute": 10**8, "tokens_per_minute": 10**12, "concurrent": 100_000}
_BUDGETS: Final = [{"amount": 8_000_000_000, "per": "month"}]
_PRICE: Final = {
    "model": MODEL,
    "input_per_mtok": "0.60",
    "cached_input_ratio": "0.1",
    "output_per_mtok": "2.40",
    "from": "2020-01-01",
}
_INDEX_DEADLINE_MS, _QUOTA_DEADLINE_MS = 50.0, 500.0
"""Longer than the defaults: Valkey shares its core with all that makes the load, and may have to wait for it."""
_TOKENS: Final = "prefixgate_tokens_total"
_STAND_IN: Final = "prefixgate_index_stand_in_matches_total"
_LEAST_SHARE_EXPECTED: Final = 0.9
"""Of the tokens that the engine reports as cached: what the index must have expected."""


def policy_of(workers: int) -> str:
    """How the row of ours with so many workers is called; it begins with the number."""
    return "1 worker" if workers == 1 else f"{workers} workers"


def gateway(key: str, index_url: str, model: Path, workers: int = 1) -> Router:
    """A gateway for whoever has this key."""

    def command(site: Site) -> Sequence[str]:
        config = site.home / "gateway.yaml"
        config.write_text(yaml.safe_dump(_config(site, key, index_url, model), sort_keys=False))
        several = ("--workers", str(workers)) if workers > 1 else ()
        return (sys.executable, "-m", "gateway", "serve", "-c", str(config), *several)

    return Router(NAME, policy_of(workers), command, {"PYTHONPATH": str(ROOT)})


def _config(site: Site, key: str, index_url: str, model: Path) -> dict[str, object]:
    digest = hashlib.sha256(key.encode()).hexdigest()
    limits = {"limits": _LIMITS, "budgets": _BUDGETS}
    tenant = {"id": _TENANT, **limits, "keys": [{"id": f"{_TENANT}-1", "sha256": digest, **limits}]}
    files = {
        "keys_file": yaml.safe_dump({"tenants": [tenant]}, sort_keys=False),
        "prices_file": yaml.safe_dump({"currency": "USD", "prices": [_PRICE]}, sort_keys=False),
        "salt_secret_file": secrets.token_hex(32),
        "admin_token_file": secrets.token_hex(16),
    }
    for name, text in files.items():
        (site.home / name).write_text(text)
    return {
        "listen": {"host": HOST, "port": site.port},
        "backends": [{"id": f"engine-{number}", "url": url} for number, url in enumerate(site.engine_urls)],
        "models": {MODEL: {"tokenizer": str(model)}},
        **{name: str(site.home / name) for name in files},
        "index": {"redis_url": index_url, "deadline_ms": _INDEX_DEADLINE_MS},
        "quota": {"deadline_ms": _QUOTA_DEADLINE_MS},
        "ledger": {"path": str(site.home / LEDGER)},
        "log_level": "info",
    }


@dataclass(frozen=True, slots=True)
class State:
    """What a gateway says of itself. `stand_in` counts matches that it answered without the shared index."""

    degraded: Mapping[str, str]
    expected_tokens: float
    reported_tokens: float
    stand_in: float


def state(url: str) -> State:
    """As of now."""
    found = scan(_page(f"{url}/metrics"), (_TOKENS, _STAND_IN))
    by_kind: dict[str, float] = {}
    for labels, value in found.get(_TOKENS, ()):
        by_kind[labels["kind"]] = by_kind.get(labels["kind"], 0.0) + value
    return State(
        json.loads(_page(f"{url}/health"))["degraded"],
        by_kind.get("cached_expected", 0.0),
        by_kind.get("cached", 0.0),
        sum(value for _, value in found.get(_STAND_IN, ())),
    )


def reason_void(before: State, after: State, ask: Ask, requests: int) -> str | None:
    """Why what was measured between two states is not what the gateway does when all is well; None where it is."""
    if after.degraded:
        return f"degraded: {', '.join(after.degraded)}"
    reported = after.reported_tokens - before.reported_tokens
    if reported < requests * ask.cached_tokens:
        return f"{reported:.0f} cached tokens counted in {requests} answers of {ask.cached_tokens}"
    expected = after.expected_tokens - before.expected_tokens
    if expected < reported * _LEAST_SHARE_EXPECTED:
        return f"{expected:.0f} cached tokens expected, {reported:.0f} reported"
    return None


def ledger_rows(path: Path) -> int:
    """Requests that are settled in a ledger as complete."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        return int(file.execute("SELECT count(*) FROM settlements WHERE state = 'complete'").fetchone()[0])


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: bytes = answer.read()
    return text.decode()
