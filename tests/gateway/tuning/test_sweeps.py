"""Sweeps over engines that are started: what they find, what they write down, how they go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.reference.embedded import RunningEngine
from gateway.cli import cli
from gateway.tuning.results import only_writer, read_rows
from tests.gateway.tuning import small_engine

ENGINE = Path(small_engine.__file__)
COMMON = """
load: {clients: 2, prompt: 8, output: 4, warm: 0, seconds: 0.2}
quality: {text: text.txt, questions: questions.yaml, open_tokens: 6, again: 1}
limits: {ready: 20, setting: 60}
"""
QUESTIONS = """
- {prompt: "What is the capital of France?", answers: [Paris]}
- {prompt: "What is the capital of Italy?", answers: [Rome]}
- {prompt: Tell a story.}
"""
HEEDS_SIGNALS = """
import signal
from gateway.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
main()
"""
"""The program, whatever the shell that runs these tests wants to be ignored."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("one two three four five six seven eight nine ten")
    (tmp_path / "questions.yaml").write_text(QUESTIONS)
    return tmp_path


def write(folder: Path, text: str, common: str = COMMON) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text + common)
    return path


def of_small(rest: str) -> str:
    return f"command: ['{sys.executable}', '{ENGINE}', '{{port}}', {rest}]\n"


def tune(path: Path, *more: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["tune", str(path), *more])
    assert result.exit_code == code, result.output
    return result


def found(path: Path, *more: str, code: int = 0) -> Any:
    return json.loads(tune(path, "--json", *more, code=code).stdout)


def rows(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "sweep.results.jsonl").read_text().splitlines()]


def test_each_way_of_telling_probabilities_gives_the_same_perplexity(folder: Path) -> None:
    path = write(folder, of_small("'{kind}'") + "grid: {kind: [echo, prompt_logprobs, forced, none]}")
    page = found(path)
    echo, prompt, forced, none = page["settings"]
    assert [one["quality"]["read_by"] for one in page["settings"]] == [
        "echo",
        "prompt_logprobs",
        "token by token",
        None,
    ]
    assert echo["quality"]["perplexity"] == prompt["quality"]["perplexity"] == forced["quality"]["perplexity"]
    assert echo["quality"]["perplexity"] == pytest.approx(4.04, rel=0.01)
    assert echo["quality"]["read_tokens"] == 9
    assert none["quality"]["perplexity"] is None
    assert "no probabilities" in none["quality"]["unread"]
    assert none["on_front"] is None
    assert none["speed"]["output_tokens_per_s"] > 0


def test_answers_are_held_against_the_baseline_and_tasks_against_what_is_right(folder: Path) -> None:
    path = write(folder, of_small("echo, --shift, '{shift}'") + "grid: {shift: [0, 1]}")
    page = found(path)
    base, other = (one["quality"] for one in page["settings"])
    assert (base["agreement"]["equal"], other["agreement"]["equal"]) == (1.0, 0.0)
    assert other["agreement"]["diverges_at"] == 0
    assert base["repeated"] == {"equal": 1.0, "same": 1, "of": 1, "diverges_at": None}
    assert base["tasks"] == {"exact": 1, "said": 1, "of": 2}
    assert (base["change"]["ratio"], base["unit"]) == (1.0, "tokens")


def test_an_engine_that_ends_is_a_row_with_the_reason_and_no_speed(folder: Path) -> None:
    path = write(folder, of_small("echo, '{dies}'") + "grid: {dies: ['', --dies-at=/v1/chat/completions, --no-such]}")
    page = found(path)
    whole, died, refused = page["settings"]
    assert whole["failed"] is None
    assert died["failed"] == "the engine ended with status 7: out of blocks"
    assert "status 2" in refused["failed"]
    assert "unrecognized arguments: --no-such" in refused["failed"]
    assert died["speed"] is None
    assert died["quality"] is None
    assert tune(path, "--show").output.count("failed:") == 2


def test_an_engine_that_never_answers_is_given_up(folder: Path) -> None:
    path = write(folder, of_small("echo, --never-ready") + "settings: [{}]", COMMON.replace("ready: 20", "ready: 0.5"))
    result = tune(path, code=1)
    assert "did not answer within 0.5 s" in result.output
    assert "no setting could be measured" in result.stderr


def test_a_command_that_is_none_is_a_row(folder: Path) -> None:
    path = write(folder, "command: no-such-engine {port}\nsettings: [{}]")
    assert "no-such-engine" in tune(path, code=1).output


def test_a_sweep_goes_on_where_it_was_and_failed_settings_only_when_asked(folder: Path) -> None:
    text = of_small("echo, '{more}'") + "grid: {more: ['', --no-such]}"
    path = write(folder, text)
    assert "--again" not in tune(path).stderr
    first = rows(folder)
    assert "not tried again: --again does" in tune(path).stderr
    assert rows(folder) == first
    assert "--again" not in tune(path, "--again").stderr
    assert [row["setting"]["more"] for row in rows(folder)] == ["", "--no-such", "--no-such"]
    path.write_text(text.replace("--no-such]", "--shift=2]") + COMMON)
    tune(path)
    assert [row["setting"]["more"] for row in rows(folder)][3:] == ["--shift=2"]


def test_another_load_is_another_measurement(folder: Path) -> None:
    path = write(folder, of_small("echo") + "settings: [{}]")
    tune(path)
    write(folder, of_small("echo") + "settings: [{}]", COMMON.replace("clients: 2", "clients: 3"))
    assert "no result of this sweep yet" in tune(path, "--show", code=1).output
    tune(path)
    assert len(rows(folder)) == 2


def test_without_a_result_of_the_baseline_nothing_is_held_against_another_setting(folder: Path) -> None:
    text = of_small("'{kind}'") + "settings: [{kind: echo}]"
    tune(write(folder, text))
    path = write(folder, text.replace("settings: [", "settings: [{kind: none}, "))
    assert "no result of the baseline yet" in tune(path, "--show", code=1).output


def test_nothing_is_started_to_say_what_would_run(folder: Path) -> None:
    path = write(folder, "command: engine --port {port} -t {t}\ngrid: {t: [1, 2]}")
    [one, two] = found(path, "--dry-run")
    assert (one["command"], two["command"]) == (
        ["engine", "--port", "0", "-t", "1"],
        ["engine", "--port", "0", "-t", "2"],
    )
    assert "engine --port 0 -t 2" in tune(path, "--dry-run").output
    assert not (folder / "sweep.results.jsonl").exists()


def test_memory_and_the_start_of_an_engine_are_told(folder: Path) -> None:
    [one] = found(write(folder, of_small("echo") + "settings: [{}]"))["settings"]
    assert 5 << 20 < one["memory_bytes"] < 500 << 20
    assert 0 < one["ready_s"] < 20


def test_the_picture_has_every_setting_that_was_measured(folder: Path) -> None:
    path = write(folder, of_small("echo, '{more}'") + "grid: {more: ['', --shift=1, --no-such]}")
    tune(path, "--svg", str(folder / "plot.svg"))
    text = (folder / "plot.svg").read_text()
    assert text.count("<circle") == 2
    assert "more=--shift=1" in text
    assert "1 more failed" in text


def test_a_real_engine_that_runs_already_is_asked_where_it_is(folder: Path, engine: RunningEngine) -> None:
    path = write(folder, f"url: {engine.url}\nsettings: [{{}}]", COMMON.replace("clients: 2", "rate: 20, requests: 3"))
    [one] = found(path)["settings"]
    assert (one["engine"], one["failed"], one["memory_bytes"]) == ("reference", None, None)
    assert one["kv_tokens"] > 0
    assert one["speed"]["output_tokens_per_s"] > 0
    assert one["quality"]["repeated"]["equal"] == 1.0
    assert one["quality"]["unit"] == "tokens"
    assert one["on_front"] is True


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("--no-models", "does not list its models"),
        ("--empty-models", "lists no model: name one in the sweep"),
        ("--no-stream", "cannot be measured"),
        ("--mute", "a question was answered with status 500"),
        ("--slow", "no request was answered whole, of those asked in 0.2 s after 0.2 s"),
        ("--hangs-up", "/v1/chat/completions was not answered"),
    ],
)
def test_what_an_engine_does_not_answer_is_the_reason(folder: Path, more: str, why: str) -> None:
    common = COMMON.replace("warm: 0", "warm: 0.2, drain: 0.1")
    assert why in tune(write(folder, of_small(f"echo, {more}") + "settings: [{}]", common), code=1).output


def test_a_model_that_is_named_need_not_be_listed(folder: Path) -> None:
    path = write(folder, of_small("echo, --no-models") + "model: small\nsettings: [{}]")
    [one] = found(path)["settings"]
    assert (one["failed"], one["engine"], one["kv_tokens"]) == (None, None, None)


def test_an_address_that_is_none_is_a_row(folder: Path) -> None:
    assert "must start with http" in tune(write(folder, "url: gpu-a\nsettings: [{}]"), code=1).output


def test_columns_of_which_nothing_is_known_are_left_out(folder: Path) -> None:
    path = write(folder, of_small("'{kind}'") + "grid: {kind: [none, forced]}")
    head = tune(path).output.splitlines()[1]
    assert "perplexity" in head
    assert "KV tokens" not in head
    assert "change" in head  # the baseline says that it is that
    assert "GPU MiB" not in head
    assert "…" not in tune(path).output


def test_a_load_that_cannot_be_is_told_before_an_engine_is_started(folder: Path) -> None:
    (folder / "chats.jsonl").write_text('{"prompt": "a"}\n{"prompt": 1}\n')
    load = COMMON.replace("clients: 2", "corpus: chats.jsonl, clients: 2")
    done = tune(write(folder, of_small("echo") + "settings: [{}]", load), code=2)
    assert "chats.jsonl, line 2" in done.output
    assert not (folder / "sweep.results.jsonl").exists()


def test_two_sweeps_do_not_write_to_the_same_results(folder: Path) -> None:
    path = write(folder, of_small("echo") + "settings: [{}]")
    with only_writer(folder / "sweep.results.jsonl"):
        assert "another sweep writes to it" in tune(path, code=2).output
    assert tune(path).exit_code == 0


def test_a_sweep_that_cannot_be_run_ends_with_2(folder: Path) -> None:
    assert "no place for a" in tune(write(folder, of_small("echo") + "grid: {a: [1]}"), code=2).output


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_nothing_is_left_of_an_engine_when_the_sweep_is_broken_off(
    folder: Path, number: signal.Signals, code: int
) -> None:
    mark = f"{os.getpid()}{number:02}"  # other tests have engines too
    command = of_small(f"echo, --never-ready, --shift, '{mark}'")
    path = write(folder, command + "settings: [{}]", COMMON.replace("ready: 20", "ready: 60"))
    sweep = subprocess.Popen(
        [sys.executable, "-c", HEEDS_SIGNALS, "tune", str(path)],
        cwd=ENGINE.parents[3],
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        engine = _engine(mark, within_s=60)
        sweep.send_signal(number)
        assert sweep.wait(60) == code
        deadline = time.monotonic() + 60
        while _words(engine):
            assert time.monotonic() < deadline, "the engine outlived the sweep"
            time.sleep(0.02)
    finally:
        sweep.kill()
        sweep.wait()
    assert not read_rows(folder / "sweep.results.jsonl")
    if number is not signal.SIGKILL:
        assert not [*folder.glob("prefixgate-tune-*")]


def _engine(mark: str, within_s: float) -> int:
    """The process of the engine with this word, once there is one."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for process in Path("/proc").iterdir():
            words = _words(int(process.name)) if process.name.isdecimal() else []
            if mark in words and words[:2] == [sys.executable, str(ENGINE)]:
                return int(process.name)
        time.sleep(0.02)
    raise AssertionError("the engine was not started")


def _words(process: int) -> list[str]:
    """Of its command line, none of one that has ended."""
    try:
        return [word for word in Path(f"/proc/{process}/cmdline").read_text().split("\0") if word]
    except OSError:
        return []
