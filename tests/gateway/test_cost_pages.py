"""Jobs and end users from a client's request to the admin API, through a gateway and engines on real ports."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, chat_stream, scripted_engine
from tests.hostile import stream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "a secret question"}], "user": "ann@example.com"}
TOKEN = {"authorization": "Bearer letmein"}
SAID = {"x-prefixgate-job-id": "run-7f3", "x-prefixgate-tags": "team=search"}


@pytest.fixture
def costs_file(tmp_path: Path) -> Path:
    path = tmp_path / "costs.yaml"
    path.write_text(
        "currency: USD\nendpoints:\n  - {endpoint: e0, gpu_type: H100, per_gpu_hour: 2.5, from: 2020-01-01}\n"
    )
    return path


def labels(path: Path) -> list[tuple[str | None, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return list(connection.execute("SELECT job_id, end_user, tags FROM requests ORDER BY opened_at_us"))


async def test_what_a_client_says_of_a_request_is_in_the_ledger_and_its_headers_at_no_engine(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        for headers in (SAID, {}):
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=headers)
            assert answer.status_code == 200
        await settled(gateway, 2)
        said, unsaid = labels(gateway.ledger_path)
        arrived = b"".join(engine.requests)
    assert said[0] == "run-7f3"
    assert said[2] == '{"team":"search"}'
    assert said[1] is not None
    assert len(said[1]) == 32
    assert unsaid == (None, said[1], None)
    assert b"run-7f3" not in arrived
    assert b"team=search" not in arrived
    assert b'"user":"ann@example.com"' in arrived
    assert b"ann@example" not in gateway.ledger_path.read_bytes()


async def test_a_job_id_that_breaks_its_rule_is_refused_and_nothing_is_sent(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(
            f"{gateway.url}/v1/chat/completions", json=CHAT, headers={"x-prefixgate-job-id": "two words"}
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "x-prefixgate-job-id"
        assert engine.requests == []


async def test_the_admin_api_says_what_tokens_and_jobs_cost_and_adds_up(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path, costs_file: Path
) -> None:
    async with scripted_engine(stream(*chat_stream("Hi", " there"))) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file, costs_file=costs_file)
        answers = [
            client.post(f"{gateway.url}/v1/chat/completions", json={**CHAT, "stream": True}, headers=SAID)
            for _ in range(3)
        ]
        assert {one.status_code for one in await asyncio.gather(*answers)} == {200}
        await settled(gateway, 3)
        cost = (await client.get(f"{gateway.url}/admin/cost", headers=TOKEN)).json()
        jobs = (await client.get(f"{gateway.url}/admin/jobs", headers=TOKEN)).json()
        strangers = [await client.get(f"{gateway.url}/admin/{page}") for page in ("cost", "jobs")]
    (endpoint,) = cost["sheets"]["endpoints"]["rows"]
    assert (endpoint["endpoint"], endpoint["calls"]) == ("e0", 3)
    assert endpoint["busy_s"] + endpoint["idle_s"] == pytest.approx(24 * 3600)
    whole, busy, idle = (round(float(cost[f"amount_{name}"]) * 10**6) for name in ("cost", "busy", "idle"))
    assert whole == pytest.approx(60 * 10**6, abs=1)
    assert busy + idle == pytest.approx(whole, abs=1)
    (job,) = jobs["jobs"]["rows"]
    assert (job["job"], job["calls"]) == ("run-7f3", 3)
    assert float(job["amount_cost_busy"]) > 0
    assert [one.status_code for one in strangers] == [401, 401]
    assert "secret" not in str(cost) + str(jobs)
    assert "ann@example" not in str(cost) + str(jobs)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 404),
        ("?from=2020-01-01", 400),
        ("?from=soon", 400),
        ("?from=2025-01-02&to=2025-01-01", 400),
        ("?from=2999-01-01&to=2999-01-02", 400),
    ],
)
async def test_a_period_that_cannot_be_and_costs_that_are_not_known_are_refused(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path, query: str, status: int
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
        answer = await client.get(f"{gateway.url}/admin/cost{query}", headers=TOKEN)
        jobs = await client.get(f"{gateway.url}/admin/jobs", headers=TOKEN)
    assert answer.status_code == status
    assert jobs.json()["jobs"]["rows"] == []


async def test_a_costs_file_that_was_spoilt_is_said_and_one_that_was_mended_holds_at_once(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path, costs_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file, costs_file=costs_file)
        good = costs_file.read_text()
        costs_file.write_text("currency: usd\n")
        spoilt = await client.get(f"{gateway.url}/admin/cost", headers=TOKEN)
        costs_file.write_text(good.replace("2.5", "5"))
        mended = await client.get(f"{gateway.url}/admin/cost", headers=TOKEN)
    assert spoilt.status_code == 400
    assert "currency" in spoilt.json()["detail"]
    assert float(mended.json()["amount_cost"]) == pytest.approx(120)
