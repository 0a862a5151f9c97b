"""A gateway for one run: its own process, index, ledger and keys, from files made for it."""

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import yaml

from gateway.demo.engines import Engine
from gateway.demo.processes import started_process
from gateway.demo.types import DemoFailed
from gateway.demo.workload import SHARE_GROUPS
from gateway.edge.auth import new_key

READY_WITHIN_S: Final = 60.0
WELL_WITHIN_S: Final = 20.0
INDEX_DEADLINE_MS: Final = 50.0
"""Engines and gateway share the cores here, and a prefill takes seconds: the index may take a little longer."""

_ASK_AGAIN_S: Final = 0.1

SPEED_PRIORS: Final[Mapping[str, Mapping[str, float]]] = {
    "smollm2": {"prefill_tokens_per_s": 200.0, "base_s": 0.05, "itl_s": 0.1, "near_tie_s": 0.05},
    "tiny": {"prefill_tokens_per_s": 4000.0, "base_s": 0.01, "itl_s": 0.02, "near_tie_s": 0.005},
}
"""What one core does with these models, as the scheduler is told it. A tie is what ten to twenty tokens cost."""

MODELS: Final = tuple(SPEED_PRIORS)
"""Models that the demo can run, the real one first."""

PRICE: Final = {
    "input_per_mtok": "3.00",
    "cached_input_per_mtok": "0.30",
    "output_per_mtok": "15.00",
    "from": "2000-01-01T00:00:00Z",
}
"""What the demo charges, in USD; a cached token costs a tenth of a computed one."""


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway, the keys of its tenants, and where its ledger is."""

    url: str
    keys: Mapping[str, str]
    ledger: Path


@asynccontextmanager
async def running_gateway(
    policy: str,
    engines: Sequence[Engine],
    *,
    model: str,
    model_directory: Path,
    home: Path,
    environment: Mapping[str, str],
) -> AsyncIterator[RunningGateway]:
    """Start a gateway of that `scheduling.policy` which has `home` to itself, and wait until it is well.

    Raises `DemoFailed`.
    """
    keys = {tenant: new_key() for tenant in SHARE_GROUPS}
    _write_files(
        home,
        {
            "keys.yaml": _keys_file({tenant: digest for tenant, (_, digest) in keys.items()}),
            "prices.yaml": {"currency": "USD", "prices": [{"model": model, **PRICE}]},
            "gateway.yaml": _config(policy, engines, model, model_directory, home),
        },
    )
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(home / "gateway.yaml")]
    async with started_process(
        f"the gateway ({policy})",
        command,
        log=home / "gateway.log",
        environment=environment,
        ready_within_s=READY_WITHIN_S,
    ) as starting:
        url = await starting.url()
        await _see_that_it_is_well(url)
        yield RunningGateway(url, {tenant: key for tenant, (key, _) in keys.items()}, home / "ledger.db")


def _write_files(home: Path, files: Mapping[str, object]) -> None:
    home.mkdir()
    for name, content in files.items():
        (home / name).write_text(yaml.safe_dump(content, sort_keys=False))
    (home / "salt").write_text(secrets.token_hex(32))


async def _see_that_it_is_well(url: str) -> None:
    """The demo shows the whole path: an index without its server, or a tokenizer by bytes, is not what it measures.

    A busy machine may be slow to answer at first, so a gateway has a while to become well.
    """
    degraded: object = "it does not answer"
    async with httpx.AsyncClient(timeout=WELL_WITHIN_S) as http:
        try:
            async with asyncio.timeout(WELL_WITHIN_S):
                while degraded:
                    degraded = (await http.get(f"{url}/health")).raise_for_status().json()["degraded"]
                    await asyncio.sleep(_ASK_AGAIN_S)
        except (TimeoutError, httpx.HTTPError) as error:
            raise DemoFailed(f"the gateway is degraded: {json.dumps(degraded)}") from error


def _config(policy: str, engines: Sequence[Engine], model: str, model_directory: Path, home: Path) -> dict[str, object]:
    return {
        "listen": {"host": "127.0.0.1", "port": 0},
        "backends": [{"id": engine.id, "url": engine.url} for engine in engines],
        "models": {model: {"tokenizer": str(model_directory)}},
        "keys_file": str(home / "keys.yaml"),
        "salt_secret_file": str(home / "salt"),
        "prices_file": str(home / "prices.yaml"),
        "ledger": {"path": str(home / "ledger.db")},
        "index": {"deadline_ms": INDEX_DEADLINE_MS},
        "scheduling": {"policy": str(policy), **SPEED_PRIORS[model]},
        "poll_interval_s": 1.0,
        "log_level": "warning",
    }


def _keys_file(digests: Mapping[str, str]) -> dict[str, object]:
    return {
        "tenants": [
            {"id": tenant, "share_group": SHARE_GROUPS[tenant], "keys": [{"id": f"{tenant}-1", "sha256": digest}]}
            for tenant, digest in digests.items()
        ]
    }
