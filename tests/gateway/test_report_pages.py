"""Usage over HTTP: a tenant reads its own and nobody else's, at a bounded rate; the operator reads all."""

import asyncio
import csv
import io
import json
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from billing import OpenedRequest, ReportTooSlow, Settlement, Usage, open_ledger, report_of
from billing.types import Correction, CorrectionKind
from gateway import report_pages
from gateway.edge.auth import new_key
from gateway.errors import BadRequest, RateLimited, Unavailable
from gateway.report_pages import MOST_DAYS, ROWS_PATH, USAGE_PATH, ReportPages
from gateway.report_rates import BURST, PER_MINUTE, Rates
from tests.billing.samples import NOON, book, opened, settled
from tests.gateway.conftest import RunningGateway, StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine

CHAT = {"model": "m", "messages": [{"role": "user", "content": "a secret question"}]}
MONTH = "month=2026-11"
BOTH = ("acme", "bolt")
CRAFTED = (
    "tenant=bolt",
    "tenant=",
    "tenant[]=bolt",
    "Tenant=bolt",
    "source=rows",
    "key=k-1&key=bolt-key",
    "month=2026-11&month=2026-10",
    "by=tenant,tenant",
    "by=bolt",
    "model=m%00&tenant=bolt",
    "format=xml",
    "limit=0",
    "limit=99999",
    "limit=1e3",
    "after=bolt",
    "after=0.1.",
    "time_zone=../../etc/passwd",
    "time_zone=Mars/Olympus",
    "misses=yes",
    "tag=team",
    "key=%00",
    "tag=a%00=b",
    "by=tag:%00",
    "after=0.5.%00",
)
"""All are refused."""
HARMLESS = (
    "key=bolt-key",
    "model=bolt",
    "key=%27%20OR%201=1--",
    "model=%25",
    "key=acme-key%27%20UNION%20SELECT%20*%20FROM%20requests--",
    "tag=team=bolt",
    "after=0.0.0",
    "after=1.0.0",
    "after=0.1794700000000000.r-bolt-0",
    "by=tenant,key,model",
    "by=tags,tag:team,hour",
)
"""All are answered, about acme alone."""


async def ledger_of_two(path: Path) -> None:
    records: list[OpenedRequest | Settlement] = []
    for tenant in BOTH:
        for n in range(3):
            name = f"r-{tenant}-{n}"
            records.append(replace(opened(name, tenant=tenant), key_id=f"{tenant}-key", tags={"team": tenant}))
            records.append(settled(name, Usage(1000, 900, 100)))
    async with open_ledger(path, book()) as ledger:
        await asyncio.gather(
            *(ledger.open(one) if isinstance(one, OpenedRequest) else ledger.settle(one) for one in records)
        )
        for tenant in BOTH:
            await ledger.correct(
                Correction(
                    correction_id=f"c-{tenant}",
                    made_at=NOON,
                    request_id=f"r-{tenant}-0",
                    tenant_id=tenant,
                    key_id=None,
                    model=None,
                    kind=CorrectionKind.CREDIT,
                    reason=f"for {tenant}",
                    currency="USD",
                    full_pico=0,
                    charged_pico=-1_000,
                )
            )


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[ReportPages]:
    path = tmp_path / "ledger.db"
    await ledger_of_two(path)
    with closing(ReportPages(path, clock=lambda: 0.0)) as found:
        yield found


async def test_a_period_before_the_calendar_of_a_zone_is_refused(pages: ReportPages) -> None:
    for path in (USAGE_PATH, ROWS_PATH):
        with pytest.raises(BadRequest, match="date value out of range"):
            await pages.of_tenant("acme", path, "from=0001-01-01T00:00Z&to=0001-01-05&time_zone=America/New_York")


@pytest.mark.parametrize("crafted", CRAFTED)
async def test_a_crafted_parameter_is_refused(pages: ReportPages, crafted: str) -> None:
    for path in (USAGE_PATH, ROWS_PATH):
        if path == USAGE_PATH and crafted.startswith("after="):
            continue  # only pages have it
        period = "" if crafted.startswith("month=") else f"{MONTH}&"
        with pytest.raises(BadRequest) as refused:
            await pages.of_tenant("acme", path, f"{period}{crafted}")
        assert "r-bolt" not in str(refused.value)


@pytest.mark.parametrize("crafted", ["", *HARMLESS])
@pytest.mark.parametrize("written", ["json", "csv"])
async def test_a_tenant_sees_itself_alone_whatever_it_asks(pages: ReportPages, crafted: str, written: str) -> None:
    for path in (USAGE_PATH, ROWS_PATH):
        answer = await pages.of_tenant("acme", path, f"{MONTH}&format={written}&{crafted}")
        assert answer.status == 200
        assert b"bolt" not in answer.body
        assert not [value for _, value in answer.headers if b"bolt" in value]


async def test_a_tenant_computes_its_bill_from_its_rows(pages: ReportPages) -> None:
    rows = await pages.of_tenant("acme", ROWS_PATH, f"{MONTH}&format=csv")
    found = list(csv.DictReader(io.StringIO(rows.body.decode())))
    assert [row["line"] for row in found] == ["usage", "usage", "usage", "credit"]
    by_hand = Decimal(0)
    for row in found:
        if row["line"] != "usage":
            by_hand += Decimal(row["amount_charged"])
            continue
        prompt, discounted, written, output = (
            int(row[name] or 0)
            for name in ("prompt_tokens", "discounted_tokens", "cache_write_tokens", "output_tokens")
        )
        write_rate = row["cache_write_per_mtok"] or row["input_per_mtok"]
        cached_rate = row["cached_input_per_mtok"] or row["input_per_mtok"]
        by_hand += (prompt - discounted - written) * Decimal(row["input_per_mtok"]) / 10**6
        by_hand += discounted * Decimal(cached_rate) / 10**6
        by_hand += written * Decimal(write_rate) / 10**6
        by_hand += output * Decimal(row["output_per_mtok"]) / 10**6
    report = await pages.of_tenant("acme", USAGE_PATH, MONTH)
    assert by_hand == Decimal(json_of(report.body)["payable"]["USD"])
    assert not {"endpoint_id", "prefill_s", "decode_s", "ttft_s"} & set(found[0])


async def test_pages_of_rows_follow_one_another_without_a_gap(pages: ReportPages) -> None:
    whole = json_of((await pages.of_tenant("acme", ROWS_PATH, MONTH)).body)
    assert whole["next"] is None
    cut: list[dict[str, Any]] = []
    following: str | None = ""
    while following is not None:
        page = json_of((await pages.of_tenant("acme", ROWS_PATH, f"{MONTH}&limit=1{following}")).body)
        cut += page["rows"]
        following = None if page["next"] is None else f"&after={page['next']}"
    assert cut == whole["rows"]
    assert len(cut) == 4


async def test_a_page_in_csv_names_the_next_in_a_header(pages: ReportPages) -> None:
    answer = await pages.of_tenant("acme", ROWS_PATH, f"{MONTH}&limit=2&format=csv")
    following = dict(answer.headers)[b"x-prefixgate-next"].decode()
    rest = await pages.of_tenant("acme", ROWS_PATH, f"{MONTH}&format=csv&after={following}")
    assert len(rest.body.decode().splitlines()) == 1 + 2
    assert b"x-prefixgate-next" not in dict(rest.headers)


async def test_a_tenant_has_so_many_reports_a_minute_and_others_have_theirs(pages: ReportPages) -> None:
    for _ in range(BURST):
        await pages.of_tenant("acme", USAGE_PATH, MONTH)
    with pytest.raises(RateLimited) as refused:
        await pages.of_tenant("acme", USAGE_PATH, MONTH)
    assert refused.value.retry_after_s == 60 / PER_MINUTE
    assert (await pages.of_tenant("bolt", USAGE_PATH, MONTH)).status == 200


def test_the_bucket_fills_again_and_one_reading_at_a_time_is_made() -> None:
    now_s = 0.0
    rates = Rates(lambda: now_s)
    for _ in range(BURST):
        with rates.turn_of("acme"):
            pass
    with pytest.raises(RateLimited), rates.turn_of("acme"):
        pass
    now_s = 60 / PER_MINUTE
    with rates.turn_of("acme"), pytest.raises(RateLimited, match="still"), rates.turn_of("acme"):
        pass


async def test_a_longer_period_than_may_be_read_is_refused(pages: ReportPages) -> None:
    with pytest.raises(BadRequest, match=f"{MOST_DAYS} days"):
        await pages.of_tenant("acme", USAGE_PATH, "from=2020-01-01&to=2026-01-01")


async def test_a_reading_past_its_deadline_is_told_as_a_limit(
    pages: ReportPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        raise ReportTooSlow(10.0)

    monkeypatch.setattr(report_pages, "report_of", slow)
    with pytest.raises(RateLimited, match="shorter period"):
        await pages.of_tenant("acme", USAGE_PATH, MONTH)


async def test_more_readings_than_there_are_threads_are_refused_and_not_queued(
    pages: ReportPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = threading.Event()
    monkeypatch.setattr(report_pages, "report_of", lambda *_: ready.wait(30) and report_of(*_))
    waiting = [asyncio.ensure_future(pages.of_tenant(tenant, USAGE_PATH, MONTH)) for tenant in BOTH]
    await asyncio.sleep(0)
    with pytest.raises(RateLimited, match="other reports"):
        await pages.of_tenant("cray", USAGE_PATH, MONTH)
    ready.set()
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200]


async def test_a_ledger_that_cannot_be_read_is_told_without_its_place(tmp_path: Path) -> None:
    with closing(ReportPages(tmp_path / "absent.db")) as pages:
        with pytest.raises(Unavailable) as refused:
            await pages.of_tenant("acme", USAGE_PATH, MONTH)
        assert str(tmp_path) not in refused.value.message


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    made = {tenant: new_key() for tenant in BOTH}
    entries = "".join(
        f"  - id: {tenant}\n    keys: [{{id: {tenant}-key, sha256: {digest}}}]\n"
        for tenant, (_, digest) in made.items()
    )
    (tmp_path / "keys.yaml").write_text(f"tenants:\n{entries}")
    return {tenant: key for tenant, (key, _) in made.items()}


async def test_over_http_a_key_says_whose_usage_it_is(
    start_gateway: StartGateway, tmp_path: Path, token_file: Path, keys: dict[str, str]
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway: RunningGateway = await asyncio.to_thread(
            start_gateway, engine.url, keys_file=tmp_path / "keys.yaml", admin_token_file=token_file
        )
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            for tenant, times in (("acme", 2), ("bolt", 3)):
                for _ in range(times):
                    answer = await client.post("/v1/chat/completions", json=CHAT, headers=bearer(keys[tenant]))
                    assert answer.status_code == 200
            period = "from=2020-01-01&to=2020-12-31"
            everything = "from=2020-01-01&to=2100-01-01"
            nobody = await client.get(f"{USAGE_PATH}?{period}")
            stranger = await client.get(f"{USAGE_PATH}?{period}", headers=bearer("pg-wrong"))
            elsewhere = await client.get(f"{USAGE_PATH}/other?{period}", headers=bearer(keys["acme"]))
            posted = await client.post(f"{USAGE_PATH}?{period}", headers=bearer(keys["acme"]))
            month = f"month={this_month(gateway)}"
            own = {
                tenant: await client.get(f"{USAGE_PATH}?{month}&by=tenant", headers=bearer(keys[tenant]))
                for tenant in BOTH
            }
            crafted = await client.get(f"{USAGE_PATH}?{month}&tenant=bolt", headers=bearer(keys["acme"]))
            all_ = await client.get(f"/admin/reports?{everything}&by=tenant", headers=bearer("letmein"))
            rows = await client.get(f"/admin/reports/rows?{everything}&tenant=bolt", headers=bearer("letmein"))
            wrong = await client.get(f"/admin/reports?{everything}&by=nothing", headers=bearer("letmein"))
            not_admin = await client.get(f"/admin/reports?{everything}", headers=bearer(keys["acme"]))
    assert [one.status_code for one in (nobody, stranger, elsewhere, posted)] == [401, 401, 404, 405]
    assert {tenant: requests_of(answer) for tenant, answer in own.items()} == {
        "acme": {"acme": 2},
        "bolt": {"bolt": 3},
    }
    assert crafted.status_code == 400
    assert requests_of(all_) == {"acme": 2, "bolt": 3}
    assert {row["tenant"] for row in rows.json()["rows"]} == {"bolt"}
    assert "endpoint_id" in rows.json()["rows"][0]
    assert (wrong.status_code, not_admin.status_code) == (400, 401)
    assert "secret" not in rows.text


def this_month(gateway: RunningGateway) -> str:
    """The month of the first request, as the ledger knows it."""
    with closing(sqlite3.connect(gateway.ledger_path)) as connection:
        (us,) = connection.execute("SELECT min(opened_at_us) FROM requests").fetchone()
    return datetime.fromtimestamp(us / 10**6, UTC).strftime("%Y-%m")


def requests_of(answer: httpx.Response) -> dict[str, int]:
    assert answer.status_code == 200, answer.text
    found: dict[str, int] = {}
    for line in answer.json()["lines"]:
        found[line["tenant"]] = found.get(line["tenant"], 0) + line["requests"]
    return found


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def json_of(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    return found
