"""A budget or a plan in another currency than the price it meets is said before a request is refused for it."""

from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from billing import PriceBook
from billing.prices.plans_file import parse_plans
from gateway.cli import cli
from gateway.currency_advice import Money, currency_advice
from gateway.keys_file import parse_keys_file

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RATES = "input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2026-01-01"
BOOK = f"""
currency: USD
prices:
  - {{id: a, model: llama-a, {RATES}}}
  - {{id: b, model: llama-b, {RATES}}}
  - {{id: c, model: other, currency: EUR, {RATES}}}
  - {{id: own, model: llama-b, tenant: acme, currency: JPY, {RATES}}}
"""
PLANS = """
currency: EUR
plans: [{id: flat, name: Flat, monthly_fee: 10}]
tenants:
  acme: [{plan: flat, from: 2026-01-01}]
  gone: [{plan: flat, from: 2026-01-01, to: 2026-02-01}]
"""
KEYS = f"""
tenants:
  - id: acme
    budgets: [{{amount: 5, per: day}}]
    keys:
      - {{id: k1, sha256: {"a" * 64}, scopes: {{models: [llama-*]}}, budgets: [{{amount: 1, per: day, currency: JPY}}]}}
      - {{id: k2, sha256: {"b" * 64}, disabled: true}}
  - {{id: free, keys: [{{id: k3, sha256: {"c" * 64}}}]}}
"""
REFUSED = "requests for it are refused with 403 model_not_priced; give the budget the currency of the price"


def money(unpriced: str = "deny") -> Money:
    assert unpriced in ("deny", "allow")
    return Money(
        PriceBook.parse(BOOK),
        parse_keys_file(Path("keys.yaml"), KEYS),
        parse_plans(PLANS, "plans"),
        "deny" if unpriced == "deny" else "allow",
    )


def test_budgets_and_plans_in_another_currency_are_said_of_the_models_that_may_be_used() -> None:
    beside = "the plan includes none of that usage, which is on an invoice of its own"
    assert currency_advice(money(), NOON) == [
        f"the budget of tenant acme is in USD, its price of llama-b in JPY: {REFUSED}",
        f"the budget of key k1 is in JPY, its price of llama-a in USD: {REFUSED}",
        f"plan flat of tenant acme is in EUR, its price of llama-b in JPY: {beside}",
        f"plan flat of tenant acme is in EUR, its price of llama-a in USD: {beside}",
    ]


def test_where_unpriced_requests_are_let_in_they_are_said_not_to_count() -> None:
    assert "do not count towards the budget" in currency_advice(money("allow"), NOON)[0]


def test_without_keys_and_plans_nothing_is_said() -> None:
    assert currency_advice(Money(PriceBook.parse(BOOK), None, None), NOON) == []


def test_both_commands_say_it(tmp_path: Path) -> None:
    for name, text in (("prices", BOOK), ("keys", KEYS), ("plans", PLANS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    places = [f"{name}_file: {tmp_path / name}.yaml" for name in ("prices", "keys", "plans")]
    config = tmp_path / "c.yaml"
    config.write_text(
        "\n".join(["backends: [{url: 'http://127.0.0.1:9'}]", f"ledger: {{path: {tmp_path}/l}}", *places])
    )
    said = f"look at: the budget of tenant acme is in USD, its price of llama-b in JPY: {REFUSED}"
    assert said in CliRunner().invoke(cli, ["prices", "check", "-c", str(config)]).output
    assert said in CliRunner().invoke(cli, ["check", "-c", str(config)]).output
    given = [f"--{name}={tmp_path / name}.yaml" for name in ("prices", "keys", "plans")]
    assert said in CliRunner().invoke(cli, ["prices", "check", *given]).output
    (tmp_path / "keys.yaml").write_text("tenants: []")
    assert CliRunner().invoke(cli, ["prices", "check", *given]).exit_code == 2
