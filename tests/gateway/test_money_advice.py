"""What is served without a price, and endpoints without a cost, are said by `check` and not by the month's report."""

import re
from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from backends.simulated.serving import ServerSpec, SimulatedServer
from billing import PriceBook
from billing.economics import CostBook
from gateway.cli import cli
from gateway.keys_file import parse_keys_file
from gateway.money_advice import unpayable, unpriced, unrated

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RATES = "input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4"
BOOK = f"""
currency: USD
prices:
  - {{id: a, model: listed, {RATES}, from: 2026-01-01}}
  - {{id: b, model: over, {RATES}, from: 2026-01-01, to: 2026-11-01}}
  - {{id: c, model: later, {RATES}, from: 2026-12-01}}
  - {{id: d, model: own, tenant: acme, {RATES}, from: 2026-01-01}}
"""
COSTS = """
currency: USD
endpoints:
  - {endpoint: gpu-a, gpu_type: any, gpus: 1, per_gpu_hour: 2, from: 2026-01-01}
  - {endpoint: gpu-b, gpu_type: any, gpus: 1, per_gpu_hour: 2, from: 2026-01-01, to: 2026-11-01}
"""


def costs(tmp_path: Path) -> CostBook:
    path = tmp_path / "costs.yaml"
    path.write_text(COSTS)
    return CostBook.load(path)


def test_models_without_a_price_now_are_named_and_the_prices_that_nobody_needs() -> None:
    assert list(unpriced(PriceBook.parse(BOOK), {"listed", "over", "later", "own"}, NOON)) == [
        "no price of later, over now: requests are recorded without an amount"
    ]
    (said,) = unpriced(PriceBook.parse(BOOK), {"v", "w", "x", "y", "z"}, NOON)
    assert said == (
        "no price of v, w, x and 2 more now: requests are recorded without an amount; "
        "the price book has listed, own, which no backend here serves"
    )


def test_where_nothing_is_served_or_all_has_a_price_nothing_is_said() -> None:
    assert list(unpriced(PriceBook.parse(BOOK), set(), NOON)) == []
    assert list(unpriced(PriceBook.parse(BOOK), {"listed"}, NOON)) == []


def test_endpoints_without_a_rate_now_are_named_and_the_rates_of_others(tmp_path: Path) -> None:
    book = costs(tmp_path)
    assert list(unrated(book, {"gpu-a"}, NOON)) == []
    assert list(unrated(book, {"gpu-a", "gpu-b"}, NOON)) == [
        "no cost of the endpoint gpu-b now: it is unknown what its tokens cost"
    ]
    (said,) = unrated(book, {"10.0.0.1-8000"}, NOON)
    assert said.endswith("; the costs file has gpu-a, gpu-b, but no backend here is called so")


def test_a_budget_without_any_price_is_said_to_let_nothing_in() -> None:
    digest, budget = "a" * 64, "budgets: [{amount: 5, per: day}]"
    keys = f"tenants: [{{id: acme, keys: [{{id: acme-1, sha256: {digest}, {budget}}}]}}, {{id: free, keys: []}}]"
    (said,) = unpayable(parse_keys_file(Path("k"), keys))
    refused = "each request under it is refused with 403 model_not_priced; give prices_file"
    assert said == f"a budget of acme-1, but no prices: {refused}"
    (said,) = unpayable(parse_keys_file(Path("k"), f"defaults: {{{budget}}}\ntenants: [{{id: all, keys: []}}]"))
    assert said.startswith("a budget of all, ")
    assert list(unpayable(parse_keys_file(Path("k"), "tenants: [{id: free, keys: []}]"))) == []


def checked(tmp_path: Path, server: SimulatedServer, *flags: str) -> str:
    for name, text in (("prices", BOOK), ("costs", COSTS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    config = tmp_path / "c.yaml"
    places = [f"{name}_file: {tmp_path / name}.yaml" for name in ("prices", "costs")]
    backend = f"backends: [{{id: a, url: '{server.url}'}}]"
    config.write_text("\n".join([backend, f"ledger: {{path: {tmp_path}/l}}", *places]))
    done = CliRunner().invoke(cli, ["check", "-c", str(config), *flags], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_check_says_both_of_a_backend_that_is_up(tmp_path: Path) -> None:
    with SimulatedServer(ServerSpec(model="llama")) as server:
        said = checked(tmp_path, server, "--no-proof")
    assert "look at: no price of llama now" in said
    assert "look at: no cost of the endpoint a now" in said


def test_a_url_with_the_path_that_clients_give_is_named_and_nothing_else_is_printed() -> None:
    with SimulatedServer(ServerSpec(model="llama")) as server:
        done = CliRunner().invoke(cli, ["check", "--backend", f"{server.url}/v1"], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert "GET /v1/models answered 404, and its URL ends with /v1: give it without" in done.stdout
    assert (done.stdout.startswith("not usable"), done.stderr) == (True, "")


def test_what_the_probes_answers_show_of_cached_tokens_is_no_longer_asked_for(tmp_path: Path) -> None:
    lacks = re.compile(r"start it with --enable-prompt-tokens-details|cached tokens in usage +cannot be told")
    for tells in (True, False):
        with SimulatedServer(ServerSpec(model="llama", speed=100.0, reports_cached_tokens=tells)) as server:
            assert lacks.search(checked(tmp_path, server, "--no-proof"))
            assert bool(lacks.search(checked(tmp_path, server))) is not tells
