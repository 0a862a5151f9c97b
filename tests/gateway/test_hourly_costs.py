"""What endpoints cost an hour, by file and by listing, and what is done with it."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import yaml

from billing.economics import CostBook
from gateway.hourly_costs import LISTED, HourlyCosts, with_listed
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.test_cost_pages import CHAT, TOKEN

COSTS = """currency: USD
endpoints:
  - {endpoint: gpu-a, gpu_type: H100, gpus: 8, per_gpu_hour: 2.5, from: 2026-01-01}
  - {endpoint: old, gpu_type: A100, per_gpu_hour: 1, from: 2020-01-01, to: 2021-01-01}
"""
LISTINGS = {"pod-7": "2.10", "gpu-a": "99", "old": "99"}


@pytest.fixture
def costs_file(tmp_path: Path) -> Path:
    path = tmp_path / "costs.yaml"
    path.write_text(COSTS)
    return path


def test_the_file_goes_before_the_listing_and_what_nobody_says_is_unknown(costs_file: Path) -> None:
    costs = HourlyCosts(costs_file, lambda: datetime(2026, 11, 30, tzinfo=UTC))
    assert [costs.per_hour(one) for one in ("gpu-a", "old", "pod-7", "other")] == [20.0, None, None, None]
    costs.listed = LISTINGS.get
    assert [costs.per_hour(one) for one in ("gpu-a", "old", "pod-7", "other")] == [20.0, None, 2.1, None]
    alone = HourlyCosts(None, lambda: datetime(2026, 11, 30, tzinfo=UTC))
    alone.listed = LISTINGS.get
    assert alone.per_hour("gpu-a") == 99.0


def test_reports_have_the_listed_prices_of_endpoints_that_the_file_lacks(costs_file: Path) -> None:
    book = CostBook.load(costs_file)
    assert with_listed(book, ["gpu-a", "other"], LISTINGS.get) is book
    completed = with_listed(book, ["gpu-a", "pod-7"], LISTINGS.get)
    assert completed.endpoint_ids == ("gpu-a", "old", "pod-7")
    rate = completed.rate_at("pod-7", 0)
    assert rate is not None
    assert (rate.gpu_type, rate.cost_pico(0, 3600 * 10**6)) == (LISTED, 2_100_000_000_000)


async def test_a_cheaper_endpoint_is_chosen_and_what_is_listed_is_reported(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path, token_file: Path, costs_file: Path
) -> None:
    listing = tmp_path / "endpoints.yaml"
    async with scripted_engine(answer_chat("Hi")) as one, scripted_engine(answer_chat("Hi")) as two:
        entries = [
            {"url": engine.url, "id": name, "gpu_cost_per_hour": price}
            for engine, name, price in ((one, "dear", "4.00"), (two, "cheap", "0.70"))
        ]
        listing.write_text(yaml.safe_dump({"endpoints": entries}))
        gateway = await start(
            start_gateway,
            discovery__file=listing,
            admin_token_file=token_file,
            costs_file=costs_file,
            scheduling__cheaper_within_s=30,
        )
        answers = [await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT) for _ in range(6)]
        await settled(gateway, 6)
        cost = (await client.get(f"{gateway.url}/admin/cost", headers=TOKEN)).json()
    assert {answer.headers["x-prefixgate-endpoint"] for answer in answers} == {"cheap"}
    rows = {row["endpoint"]: row for row in cost["sheets"]["endpoints"]["rows"]}
    assert rows["cheap"]["calls"] == 6
    assert float(cost["amount_cost"]) == pytest.approx(24 * (20 + 4 + 0.7))
