"""`prefixgate plan`, as it is typed."""

import json

import pytest
from typer.testing import CliRunner

from gateway.cli import cli

USUAL = ("--prompt", "2000", "--cached", "0.5", "--output", "300")


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    done = CliRunner().invoke(cli, ["plan", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_every_gpu_has_its_line() -> None:
    code, out, _ = run("llama-3.1-8b", *USUAL)
    assert code == 0
    assert "1 × h100 " in out
    assert "mi300x" in out


def test_of_one_gpu_every_figure_says_how_it_came_about() -> None:
    code, out, _ = run("llama-3.1-70b", *USUAL, "--gpu", "h100", "--gpus", "4", "--load", "20", "--per-gpu-hour", "2.5")
    assert code == 0
    assert "7.06e+10 parameters × 16 bits / 8" in out
    assert "memory bandwidth binds" in out
    assert "a million cached tokens" in out


def test_json_has_the_figures_as_numbers_with_their_units() -> None:
    arguments = ("llama-3.1-70b", *USUAL, "--gpu", "h100", "--load", "20", "--itl", "0.05", "--api", "3:0.3:15")
    code, out, _ = run(*arguments, "--per-gpu-hour", "2.5", "--link", "50", "--draft", "llama-3.1-8b", "--json")
    assert code == 0
    (found,) = json.loads(out)
    figures = {figure["name"]: figure for figure in found["figures"]}
    assert figures["weights"]["value"] == 141.2e9
    assert figures["weights"]["unit"] == "B"
    assert figures["ITL"]["value"] <= 0.05
    assert found["limits"] == {"ttft_p90_s": None, "itl_s": 0.05}
    assert found["replicas"] * found["gpus"] == figures["GPUs"]["value"]
    assert figures["one request at the API"]["value"] == pytest.approx((1000 * 3 + 1000 * 0.3 + 300 * 15) / 1e6)
    assert found["apart"]["decode_replicas"] >= 1
    assert found["speculation_speed_up"] > 0


def test_cached_tokens_leave_one_to_compute() -> None:
    code, out, _ = run("llama-3.1-8b", "--gpu", "h100", "--cached", "1", "--json")
    assert code == 0
    assert json.loads(out)[0]["request"]["cached_tokens"] == 1999


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("gpt-7",), 2, "gpt-7: known are smollm2-135m"),
        ((), 2, "no model: known are"),
        (("llama-3.1-8b", "--gpu", "h900"), 2, "h900: known are a100-40g"),
        (("llama-3.1-8b", "--weight-bits", "5"), 2, "16, 8 or 4 bits"),
        (("llama-3.1-8b", "--gpu", "h100", "--draft", "tiny"), 2, "tiny: known are"),
        (("llama-3.1-8b", "--gpu", "h100", "--draft", ""), 2, "no model: known are"),
        (("llama-3.1-8b", "--api", "1"), 2, "INPUT:OUTPUT"),
        (("llama-3.1-8b", "--api", "1:x"), 2, "prices are numbers"),
        (("llama-3.1-8b", "--api", "-1:2"), 2, "prices are numbers"),
        (("llama-3.1-8b", "--api", "inf:2"), 2, "prices are numbers"),
        (("llama-3.1-405b", "--gpu", "l4", "--gpus", "1"), 1, "the weights do not fit"),
        (("llama-3.1-405b", "--gpu", "l4"), 1, "16 GPUs are too few"),
        (("llama-3.1-8b", "--gpu", "l4", "--itl", "0.001"), 1, "not even one request at a time keeps the limits"),
        (("smollm2-135m", "--gpu", "l4", "--prompt", "9000000"), 1, "9,000,300 tokens are more than the 8,192 of its"),
        (("opt-13b", "--gpu", "h100", "--prompt", "1749"), 1, "2,049 tokens are more than the 2,048 of its context"),
        (("llama-3.1-8b", "--gpu", "h100", "--gpus", "33"), 1, "than the model has heads, 32"),
        (("llama-3.1-8b", "--gpu", "h100", "--load", "inf"), 2, "'--load'"),
        (("llama-3.1-8b", "--gpu", "h100", "--load", "1e300"), 2, "'--load'"),
        (("llama-3.1-8b", "--gpu", "h100", "--per-gpu-hour", "inf"), 2, "'--per-gpu-hour'"),
        (("llama-3.1-8b", "--gpu", "h100", "--per-gpu-hour", "2", "--api", "0:0"), 2, "nothing costs less"),
        (("llama-3.1-8b", "--gpu", "h100", "--per-gpu-hour", "2", "--api", "1e-320:0"), 2, "prices are numbers"),
        (("llama-3.1-8b", "--gpu", "h100", "--api", "1:2"), 2, "give --per-gpu-hour too"),
        (("llama-3.1-8b", "--gpu", "h100", "--link", "50"), 2, "give --load too"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: tuple[str, ...], code: int, says: str) -> None:
    found, _, err = run(*arguments)
    assert (found, says in err) == (code, True), err


def test_prices_of_tokens_and_the_month_of_the_gpus_are_the_same_money() -> None:
    """Of four machines that stand half idle all four are paid for, so a token costs twice as much."""
    asked = ("qwen3-32b", *USUAL, "--gpu", "h100", "--gpus", "2", "--per-gpu-hour", "2.5", "--api", "0.6:2.4", "--json")
    for load, mean in (("0.1", "1"), ("20", "0.3"), ("4", "1")):
        code, out, _ = run(*asked, "--load", load, "--utilisation", mean)
        assert code == 0
        figure = {one["name"]: one["value"] for one in json.loads(out)[0]["figures"]}
        fresh, cached, made = (figure[f"a million {kind} tokens"] for kind in ("fresh", "cached", "output"))
        of_a_request = (1000 * fresh + 1000 * cached + 300 * made) / 1e6
        requests = float(load) * float(mean) * 730.5 * 3600
        assert requests * of_a_request == pytest.approx(figure["a month of the GPUs"])
        cheaper = of_a_request < figure["one request at the API"]
        assert cheaper == (figure["load over break-even"] > 1)


def test_without_load_and_for_nothing_there_is_a_plan_and_no_price_of_a_token() -> None:
    code, out, err = run("qwen3-32b", "--gpu", "h100", "--gpus", "2", "--per-gpu-hour", "2", "--load", "0")
    assert (code, "a million" in out) == (0, False), err
    free = ("--per-gpu-hour", "0", "--load", "1", "--api", "1:1")
    assert run("qwen3-32b", "--gpu", "h100", "--gpus", "2", *free)[0] == 0


def test_what_the_table_of_all_gpus_leaves_out_is_said() -> None:
    code, _, err = run("llama-3.1-8b", "--per-gpu-hour", "2", "--api", "1:2")
    assert (code, "name it with --gpu" in err) == (0, True)
    code, _, err = run("llama-3.1-8b", "--per-gpu-hour", "2", "--api", "1:2", "--json")
    assert (code, err) == (0, "")


def test_a_split_that_no_replicas_can_make_is_said() -> None:
    asked = ("qwen3-32b", "--gpu", "h100", "--gpus", "4", "--load", "1", "--ttft", "1", "--link", "0.001")
    assert "no number of replicas keeps the limits" in run(*asked)[1]


def test_what_is_known_is_listed() -> None:
    code, out, _ = run("--list", "--json")
    assert code == 0
    assert "deepseek-v3" in json.loads(out)["models"]
    assert "h200" in run("--list")[1]
