"""The benchmark of overhead: what is asked, what wrk said, what processes used, when ours was not well."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from backends.reference.model_files import ensure_model
from bench.overhead_backend import ToolMissing, backend, program, proxy
from bench.overhead_gateway import State, reason_void
from bench.overhead_load import Measured, NoResult, read_output
from bench.overhead_process import used
from bench.overhead_profile import part_of, read_stacks
from bench.overhead_prompts import BLOCK_SIZE, DIGITS, SIZES, Ask, asks
from bench.overhead_stage import Cores

ASK = Ask("2.3 KB", '{"q":"', '"}', prompt_tokens=464, cached_tokens=432, output_tokens=22)
WRK = """\
Running 3s test @ http://127.0.0.1:8000
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   538.87us    0.89ms  12.12ms   89.50%
    Req/Sec    30.90k     1.02k   33.00k    83.50%
  Latency Distribution
     50%  250.00us
     99%    4.43ms
  92703 requests in 3.00s, 66.40MB read
  Non-2xx or 3xx responses: 7
Requests/sec:  30901.44
RESULT {"requests":92703,"duration_us":3000000,"p50_us":250,"p99_us":4430,\
"status":7,"connect":0,"read":0,"write":0,"timeout":2}
"""


def test_only_the_line_of_the_script_is_read_with_errors_by_kind() -> None:
    found = read_output(WRK)
    assert found == Measured(92703, 3_000_000, 250, 4430, {"status": 7, "timeout": 2})
    assert found.per_s == pytest.approx(30901)


def test_without_that_line_the_last_words_are_told() -> None:
    with pytest.raises(NoResult, match=r"^unable to connect$"):
        read_output("Running\nunable to connect\n")
    with pytest.raises(NoResult, match="said nothing"):
        read_output("")


def test_prompts_of_a_size_have_one_length_and_share_what_the_answer_says_is_cached() -> None:
    (ask,) = asks({"2.3 KB": SIZES["2.3 KB"]}, ensure_model("smollm2"))
    assert len(ask.body(1)) == len(ask.body(10**DIGITS - 1)) == pytest.approx(SIZES["2.3 KB"], rel=0.02)
    assert ask.body(7) != ask.body(8)
    assert ask.cached_tokens % BLOCK_SIZE == 0
    assert 0 < ask.prompt_tokens - ask.cached_tokens < 3 * BLOCK_SIZE
    assert ask.answer()["usage"] == {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": ask.output_tokens,
        "total_tokens": ask.prompt_tokens + ask.output_tokens,
        "prompt_tokens_details": {"cached_tokens": ask.cached_tokens},
    }


def test_a_missing_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match="apt-get install some-package"):
        program("surely-not-there", "some-package")


def test_engines_answer_by_the_length_of_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.overhead_backend.program", lambda name, _: f"/bin/{name}")
    long = replace(ASK, head="x" * 20_000, prompt_tokens=9488)
    command = backend(tmp_path / "engines", (7001, 7002), (ASK, long)).command
    text = (tmp_path / "engines" / "nginx.conf").read_text()
    assert command[0] == "/bin/nginx"
    assert r"""~^\d\d$ '{"id":""" in text
    assert r"""~^\d\d\d\d\d$ '{"id":""" in text
    assert text.count('"prompt_tokens":9488') == 1
    assert "listen 127.0.0.1:7001; listen 127.0.0.1:7002;" in text
    proxy(tmp_path / "proxy", 7000, (7001, 7002))
    assert "server 127.0.0.1:7001; server 127.0.0.1:7002; keepalive" in (tmp_path / "proxy" / "nginx.conf").read_text()


def test_what_a_process_used_is_that_of_its_children_too() -> None:
    burn = "import time; until = time.process_time() + 0.05\nwhile time.process_time() < until: pass\n"
    child = f"{burn}print(flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen((sys.executable, "-c", parent), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdout.readline()
        found = used(running.pid)
        running.stdin.close()
    assert found.cpu_us >= 40_000
    assert found.peak_mb >= found.resident_mb > 10


def test_ours_is_void_where_it_was_degraded_or_did_not_expect_what_was_cached() -> None:
    before = State({}, expected_tokens=1000.0, reported_tokens=2000.0, stand_in=0.0)
    well = State({}, 1000.0 + 98 * 432, 2000.0 + 100 * 432, 0.0)
    assert reason_void(before, well, ASK, 100) is None
    assert reason_void(before, replace(well, degraded={"index": "late"}), ASK, 100) == "degraded: index"
    assert "43200 reported" in str(reason_void(before, replace(well, expected_tokens=1000.0), ASK, 100))
    assert "in 101 answers of 432" in str(reason_void(before, well, ASK, 101))


def test_workers_get_cores_of_their_own_where_there_are_some() -> None:
    assert Cores(0, 1, ()).of(1) == "0"
    assert Cores(0, 1, ()).of(2) == "0,1"
    assert Cores(0, 1, (2, 3)).of(2) == "0,2"


def test_stacks_become_time_by_part_and_by_function_whatever_the_line() -> None:
    profile = read_stacks(
        [
            "main (asyncio/runners.py:118);serve (gateway/pipeline.py:9);encode (json/encoder.py:1) 3",
            "main (asyncio/runners.py:118);serve (gateway/pipeline.py:12);serve (gateway/pipeline.py:14) 2",
        ]
    )
    assert profile.samples == 5
    assert profile.own == Counter({"encode (json/encoder.py)": 3, "serve (gateway/pipeline.py)": 2})
    assert profile.parts == Counter({"json": 3, "gateway/pipeline": 2})
    assert profile.within["serve (gateway/pipeline.py)"] == 5
    assert part_of("run (threading.py)") == "threading"
