import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from gateway.demo.run import percentile
from gateway.demo.table import outcome_json, show_outcome
from gateway.demo.types import DemoOutcome


def shown(outcome: DemoOutcome) -> str:
    out = io.StringIO()
    show_outcome(outcome, Console(file=out, width=80, force_terminal=False))
    return out.getvalue()


def test_the_table_shows_both_policies_whole_in_eighty_columns(outcome: DemoOutcome) -> None:
    lines = shown(outcome).splitlines()
    assert max(map(len, lines)) <= 80
    assert ["round", "robin", "44,506", "22,656", "50.9%", "21,850", "2.29", "17.22", "152.0", "108.9"] in [
        line.split() for line in lines
    ]
    assert ["prefix-aware", "44,506", "34,386", "77.3%", "10,120", "1.08", "6.47", "96.2", "79.3"] in [
        line.split() for line in lines
    ]


def test_the_check_line_shows_both_sums_of_cached_tokens(outcome: DemoOutcome) -> None:
    text = " ".join(shown(outcome).split())
    assert "Σ ledger's cached tokens 34,386 = 34,386 Σ engines' hits: agrees" in text
    assert "DISAGREES" not in text


def test_a_ledger_that_is_one_token_off_is_said_to_disagree(outcome: DemoOutcome) -> None:
    first, second = outcome.runs
    wrong = replace(outcome, runs=(first, replace(second, ledger_cached_tokens=34_385)))
    assert not wrong.ledger_agrees
    assert "34,385 ≠ 34,386 Σ engines' hits: DISAGREES" in " ".join(shown(wrong).split())


def test_amounts_on_the_bill_keep_all_their_digits(outcome: DemoOutcome) -> None:
    rows = [line.split() for line in shown(outcome).splitlines()]
    assert ["acme", "30", "30,000", "12,000", "300", "0.044703", "0.0157158", "0.0289872"] in rows
    assert ["cedar", "25", "25,000", "10,000", "250", "10.055722", "10", "0.055722"] in rows


def test_the_json_has_what_the_table_shows(outcome: DemoOutcome) -> None:
    written = json.loads(json.dumps(outcome_json(outcome)))
    assert written["seed"] == 1
    assert written["kv_blocks"] == 364
    assert written["working_set"]["blocks"] == 606
    assert written["computed_ratio"] == pytest.approx(10_120 / 21_850)
    assert written["ledger_agrees"] is True
    assert [run["policy"] for run in written["runs"]] == ["round_robin", "prefix"]
    assert written["runs"][1] == {
        "policy": "prefix",
        "requests": 55,
        "requests_by_engine": {"engine-0": 28, "engine-1": 27},
        "prompt_tokens": 44_506,
        "cached_tokens": 34_386,
        "cached_share": pytest.approx(34_386 / 44_506),
        "computed_tokens": 10_120,
        "prefill_s": 96.2,
        "ttft_p50_s": 1.08,
        "ttft_p90_s": 6.47,
        "wall_s": 79.3,
        "ledger_cached_tokens": 34_386,
        "ledger_agrees": True,
    }
    assert written["bill"][0]["charged"] == "0.015715800000"
    assert written["total"]["requests"] == 55


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 2.0), (75, 3.0), (90, 4.0), (100, 4.0)])
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([4.0, 2.0, 1.0, 3.0], percent) == expected
