"""`prefixgate plan`, as it is typed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import cli
from tests.backends.planning.published_configs import GEMMA_3_27B, PUBLISHED

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


def test_a_model_that_is_not_in_the_catalogue_is_planned_by_its_file(tmp_path: Path) -> None:
    """Whatever the file says in the catalogue's name comes out as by that name, but for what the name rounds."""
    folder = tmp_path / "our-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(PUBLISHED["llama-3.1-8b"]))
    asked = (*USUAL, "--gpu", "h100", "--load", "20", "--itl", "0.05", "--json")
    (known,) = json.loads(run("llama-3.1-8b", *asked)[1])
    for path in (folder, folder / "config.json"):
        code, out, err = run("--config-json", str(path), *asked)
        assert (code, err) == (0, "")
        (found,) = json.loads(out)
        assert found["model"] == "our-8b"
        assert found["replicas"] == known["replicas"]
        for mine, theirs in zip(found["figures"], known["figures"], strict=True):
            assert (mine["name"], mine["value"]) == (theirs["name"], pytest.approx(theirs["value"], rel=0.01))


def test_in_hugging_faces_cache_a_model_has_the_name_of_its_repository(tmp_path: Path) -> None:
    folder = tmp_path / "models--meta-llama--Llama-3.1-8B" / "snapshots" / "0e9e39f2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(PUBLISHED["llama-3.1-8b"]))
    code, out, _ = run("--config-json", str(folder), "--gpu", "h100", "--json")
    assert (code, json.loads(out)[0]["model"]) == (0, "meta-llama/Llama-3.1-8B")


def test_what_of_a_file_is_not_counted_or_planned_otherwise_is_said(tmp_path: Path) -> None:
    seeing, rounded = tmp_path / "gemma.json", tmp_path / "oss.json"
    seeing.write_text(json.dumps(GEMMA_3_27B))
    rounded.write_text(json.dumps(PUBLISHED["gpt-oss-20b"]))
    code, out, err = run("--config-json", str(seeing), "--gpu", "h100", "--gpus", "2")
    assert (code, "gemma on 2 × h100" in out, "sees pictures or hears sound" in err) == (0, True, True)
    code, _, err = run("--config-json", str(rounded), "--gpu", "h100", "--weight-bits", "4")
    assert (code, "published in mxfp4; --weight-bits" in err) == (0, True)


@pytest.mark.parametrize(
    ("written", "arguments", "says", "named"),
    [
        (None, (), "config.json: No such file", "file_unusable"),
        ("{", (), "is no JSON", "model_unreadable"),
        ("[1]", (), "is no JSON object", "model_unreadable"),
        ("[" * 100_000, (), "is no JSON", "model_unreadable"),
        ('{"model_type": "mamba"}', (), "model_type: 'mamba': read are llama", "model_unreadable"),
        ('{"model_type": "llama"}', (), "hidden_size: not in the file", "model_unreadable"),
        ("{}", ("llama-3.1-8b",), "a name of the catalogue or a file", "cannot_be_used"),
    ],
)
def test_a_file_that_does_not_say_what_its_model_takes_is_refused(
    tmp_path: Path, written: str | None, arguments: tuple[str, ...], says: str, named: str
) -> None:
    path = tmp_path / "config.json"
    if written is not None:
        path.write_text(written)
    code, out, err = run(*arguments, "--config-json", str(path))
    assert (code, out, says in err) == (2, "", True), err
    error = json.loads(run(*arguments, "--config-json", str(path), "--json")[2])["error"]
    assert error["code"] == named


def test_a_name_that_is_not_known_is_told_of_the_file() -> None:
    assert "--config-json config.json" in run("gpt-7")[2]


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


@pytest.mark.parametrize("gpus", [("--gpus", "1"), ()])
def test_what_prefill_and_decode_apart_serve_alone_is_served(gpus: tuple[str, ...]) -> None:
    itl = "0.0071" if gpus else "0.0011"
    code, out, error = run("llama-3.1-8b", "--gpu", "h100", *gpus, "--load", "5", "--link", "50", "--itl", itl)
    assert code == 0
    assert "prefill and decode apart" in out
    assert "only prefill and decode apart serve it" in error


def test_a_split_that_no_replicas_can_make_is_said() -> None:
    asked = ("qwen3-32b", "--gpu", "h100", "--gpus", "4", "--load", "1", "--ttft", "1", "--link", "0.001")
    assert "no number of replicas keeps the limits" in run(*asked)[1]


def test_what_is_known_is_listed() -> None:
    code, out, _ = run("--list", "--json")
    assert code == 0
    assert "deepseek-v3" in json.loads(out)["models"]
    assert "h200" in run("--list")[1]
