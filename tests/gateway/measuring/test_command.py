"""`prefixgate measure` against simulated engines on real ports, and against a ledger that a gateway wrote."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from backends.perf import PerfModel
from backends.simulated import EngineSpec
from backends.simulated.serving import ServerSpec, SimulatedServer
from gateway.admin_client import Asked, look_again
from gateway.cli import cli
from gateway.measuring.verdict import bottleneck_of

SPEED = 5.0
PERF = PerfModel(0.01, 20_000.0, 0.0, 0.02, 0.0005)
"""Seconds of the engine; a client sees a fifth of them."""
QUICK = ("--seconds", "0.8", "--warm", "0.2", "--drain", "5", "--seed", "7")
COUNTED = ("--seconds", "60", "--warm", "0", "--drain", "60", "--seed", "7")
"""What ends a level is its requests."""


@pytest.fixture(scope="module")
def engine() -> Iterator[SimulatedServer]:
    spec = ServerSpec(engine=EngineSpec(perf=PERF, capacity_blocks=200_000), speed=SPEED, max_model_len=50_000)
    with SimulatedServer(spec) as server:
        yield server


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    done = CliRunner().invoke(cli, ["measure", *arguments])
    return done.exit_code, done.stdout, done.stderr


def measured(*arguments: str) -> dict[str, Any]:
    code, out, error = run(*arguments, "--json")
    assert code == 0, error
    found: dict[str, Any] = json.loads(out)
    return found


def test_long_prompts_are_more_prefill_than_short_ones_and_named_by_that(engine: SimulatedServer) -> None:
    """That the names are right is shown where time is virtual: `test_verdict.py`."""
    lengths = ("--prompt", "4000", "--output", "3", "--clients", "1,4")
    long = measured(engine.url, *lengths, "--ttft", "0.01", *QUICK)
    short = measured(engine.url, "--prompt", "32", "--output", "100", "--clients", "1,4", *QUICK)
    assert (long["verdict"]["binds"], short["verdict"]["binds"]) == ("ttft", "none_given")
    first, last = long["levels"][0]["prefill_share"], short["levels"][-1]["prefill_share"]
    assert first > 2 * last
    assert long["verdict"]["bottleneck"] == bottleneck_of(first), "the first that breaks a limit"
    assert short["verdict"]["bottleneck"] == bottleneck_of(last), "the busiest"
    assert long["lengths"]["prompt"]["p50"] == pytest.approx(4000, rel=0.01)
    assert long["lengths"]["output"]["p50"] == 3


def test_a_tight_limit_of_itl_is_named_as_what_binds(engine: SimulatedServer) -> None:
    lengths = ("--prompt", "3000", "--output", "30", "--clients", "8,16")
    found = measured(engine.url, *lengths, "--ttft", "60", "--itl", "0.003", *QUICK)
    assert found["verdict"]["binds"] == "itl"
    assert found["verdict"]["turn"]


def test_shared_prefixes_are_found_cached_and_never_above_their_ceiling(engine: SimulatedServer) -> None:
    shape = ("--prompt", "640", "--output", "2", "--shared", "0.75", "--groups", "2")
    found = measured(engine.url, *shape, "--clients", "4", "--requests", "60", *COUNTED)
    assert 0.5 < found["hit_share"] <= found["ceiling_share"] + 0.02


def test_a_built_in_load_and_a_trace_and_a_corpus_are_sent(engine: SimulatedServer, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = ({"timestamp": 50 * n, "input_length": 40, "output_length": 3, "hash_ids": [0]} for n in range(8))
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = measured(engine.url, "--trace", str(trace), "--recorded", *COUNTED)
    assert found["levels"][0]["requests"] == 8
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"prompt": "one two three", "max_tokens": 3}\n{"messages": [{"role": "user", "content": "a"}]}\n'
    )
    found = measured(
        engine.url, "--corpus", str(corpus), "--output", "5", "--clients", "2", "--requests", "6", *COUNTED
    )
    assert {found["lengths"]["output"]["least"], found["lengths"]["output"]["most"]} == {3, 5}
    assert found["ceiling_share"] is None
    found = measured(engine.url, "--load", "no-sharing", "--clients", "2", "--requests", "2", *COUNTED)
    assert found["levels"][0]["requests"] == 2


def test_clients_double_until_nothing_is_won(engine: SimulatedServer) -> None:
    found = measured(engine.url, "--prompt", "4000", "--output", "2", *QUICK)
    clients = [level["clients"] for level in found["levels"]]
    assert sorted(clients) == [2**power for power in range(len(clients))]
    assert 2 <= len(clients) <= 6


def test_people_get_tables_charts_and_the_verdict(engine: SimulatedServer, tmp_path: Path) -> None:
    svg, png = tmp_path / "m.svg", tmp_path / "m.png"
    charts = ("--chart", "--plot", str(svg), "--plot", str(png))
    code, out, error = run(engine.url, "--prompt", "32", "--output", "40", "--clients", "1,2,4", *charts, *QUICK)
    assert code == 0, error
    assert svg.read_text().startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "Share of busy time   0 prefill  1 decode" in out
    assert "bottleneck; no limit was given" in out
    assert "4 clients" in out
    assert "TTFT p90" in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("http://127.0.0.1:1",), 1, "cannot be measured"),
        (("nowhere",), 2, "must start with http"),
        (("http://127.0.0.1:1", "--clients", "1", "--rate", "1"), 2, "either clients or rates"),
        (("http://127.0.0.1:1", "--clients", "a"), 2, "give numbers"),
        (("http://127.0.0.1:1", "--clients", "0"), 2, "1 to 65,536 clients"),
        (("http://127.0.0.1:1", "--seconds", "inf"), 2, "--seconds"),
        (("http://127.0.0.1:1", "--ttft", "inf"), 2, "--ttft"),
        (("--rate", "2"), 2, "--rate: a load needs the URL"),
        (("http://127.0.0.1:1", "--month", "2026-11"), 2, "--month: of a ledger"),
        (("http://127.0.0.1:1", "--length-cv", "inf"), 2, "--length-cv"),
        (("http://127.0.0.1:1", "--api-key-env", "NO_SUCH_KEY"), 2, "no such variable"),
        (("http://127.0.0.1:1", "--plot", "no/such/folder/m.svg"), 2, "folder is not there"),
        (("http://127.0.0.1:1", "--rate", "0"), 2, "more than 0"),
        (("http://127.0.0.1:1", "--load", "x"), 2, "built-in loads are"),
        (("http://127.0.0.1:1", "--trace", "no.jsonl", "--load", "x"), 2, "only one of"),
        (("http://127.0.0.1:1", "--corpus", "no.jsonl"), 2, "no.jsonl"),
        (("--ledger", "no.db"), 2, "there is no ledger"),
        (("http://127.0.0.1:1", "--plot", "m.gif"), 2, "ends in .svg or .png"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(arguments: tuple[str, ...], code: int, says: str) -> None:
    found, _, error = run(*arguments)
    assert found == code
    assert says in error


def test_an_address_that_wants_a_key_says_so_and_no_key_is_shown() -> None:
    spec = ServerSpec(dialect="vllm", speed=SPEED, api_key="secret")
    with SimulatedServer(spec) as server:
        code, _, error = run(server.url, "--model", "simulated")
        assert code == 1
        assert "status 401" in error
        assert "secret" not in error


def test_a_gateway_that_is_away_for_a_while_ends_no_watch() -> None:
    assert look_again("/admin/endpoints", Asked("http://127.0.0.1:1", "token"), list) is None
    with SimulatedServer(ServerSpec(dialect="vllm", speed=SPEED)) as engine:
        assert look_again("/v1/models", Asked(engine.url, "token"), list) is None  # an object, and no list
        assert look_again("/v1/models", Asked(engine.url, "token"), dict) is not None


def test_a_picture_that_cannot_be_written_costs_no_figures(engine: SimulatedServer, tmp_path: Path) -> None:
    folder = tmp_path / "m.svg"
    folder.mkdir()
    code, out, error = run(
        engine.url, "--prompt", "16", "--output", "2", "--clients", "1", "--plot", str(folder), *QUICK
    )
    assert code == 1
    assert "1 client" in out
    assert "m.svg: Is a directory" in error
