"""A gateway whose ledger is a PostgreSQL server, also while that is away."""

import logging
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.checking import check_files
from gateway.config import Config, ConfigInvalid, ledger_place, load_config
from tests.billing.outages import away
from tests.gateway.conftest import StartGateway, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.test_faults import CHAT, ask
from tests.until import until

SECRET = "correct-horse-battery"


def settled(url: str) -> list[dict[str, object]]:
    query = "SELECT * FROM settlements JOIN requests USING (request_id) ORDER BY opened_at_us"
    with psycopg.connect(url, row_factory=dict_row) as server:
        return server.execute(query).fetchall()


async def test_requests_are_billed_in_postgresql(
    start_gateway: StartGateway, client: httpx.AsyncClient, postgres_url: str
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, ledger__url=postgres_url)
        assert (await ask(client, gateway, CHAT)).status_code == 200
        assert [row["state"] for row in settled(postgres_url)] == ["complete"]
        assert "ledger" not in (await client.get(f"{gateway.url}/health")).json().get("degraded", {})
    assert not gateway.ledger_path.exists()


async def test_while_the_server_is_away_usage_waits_on_the_disk(
    start_gateway: StartGateway, client: httpx.AsyncClient, postgres_url: str, tmp_path: Path
) -> None:
    flags = {"ledger__url": postgres_url, "ledger__on_ledger_down": "spool", "ledger__spool": tmp_path / "spool"}
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, **flags)
        with away(postgres_url):
            for _ in range(3):
                assert (await ask(client, gateway, CHAT)).status_code == 200
            health = (await client.get(f"{gateway.url}/health")).json()
            assert "wait on the local disk" in health["degraded"]["ledger"]
            assert gateway.metric("prefixgate_ledger_spool_records") == 6
        await until(lambda: gateway.metric("prefixgate_ledger_spool_bytes") == 0)
        assert [row["state"] for row in settled(postgres_url)] == ["complete"] * 3
        assert "ledger" not in (await client.get(f"{gateway.url}/health")).json().get("degraded", {})


def configured(**ledger: object) -> Config:
    return load_config(None, {}, {"backends": [{"url": "http://127.0.0.1:1"}], "ledger": ledger})


def test_the_password_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    url = "postgresql://bill@db.example/usage?sslmode=require"
    for ledger in ({"password_file": file}, {"password_env": "PGPASS"}):
        place = str(ledger_place(configured(url=url, **ledger), {"PGPASS": SECRET}))
        assert place == f"postgresql+psycopg://bill:{SECRET}@db.example/usage?sslmode=require"
    with pytest.raises(ConfigInvalid, match="PGPASS is not set"):
        ledger_place(configured(url=url, password_env="PGPASS"), {})


@pytest.mark.parametrize(
    ("ledger", "why"),
    [
        ({"url": "mysql://db/usage"}, "use postgresql:// or a path"),
        ({"url": "a path"}, "cannot be read"),
        ({"url": f"postgresql://bill:{SECRET}@db/usage", "password_env": "X"}, "given twice"),
        ({"url": "postgresql://db/usage", "password_env": "X", "password_file": "x"}, "given twice"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_repeated(ledger: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigInvalid, match=why) as caught:
        configured(**ledger)
    assert SECRET not in str(caught.value)


def test_a_server_that_is_not_there_is_found_by_check_and_its_password_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = configured(url=f"postgresql://bill:{SECRET}@127.0.0.1:1/usage")
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigInvalid, match=r"ledger\.url") as caught:
        check_files(config, {})
    assert SECRET not in str(caught.value) + caplog.text
