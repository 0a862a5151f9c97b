"""`prefixgate lint`: exit codes, forms, bounds and what it costs, over real files."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.reference.model_files import ensure_model
from gateway.cli import cli
from gateway.commands.linting.costs import Costs, total_a_day, total_lost
from prefix_index.lint import Every, Finding, Place
from prefix_index.lint.rules import DATE, TIME, USER

FIXED = "Be kind, brief and exact in all that you say, and name the shelf of each book that you speak of.\n" * 4
TIMED = "{{ now }}\n" + FIXED
LOST = len(FIXED) // 4 // 16 * 16
DATED = '{{ "Today: " + strftime_now("%d %b %Y") }} {% for m in messages %}{{ m.content }}{% endfor %}'


def lint(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["lint", *map(str, arguments)])


def data(*arguments: object) -> dict[str, Any]:
    result = lint(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one fault, and the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.jinja").write_text(TIMED)
    (tmp_path / "prompts" / "b.jinja").write_text(FIXED + "{{ now }}")
    return tmp_path


def captured(path: Path, count: int = 4, model: str = "m") -> Path:
    requests = [
        {
            "model": model,
            "messages": [
                {"role": "system", "content": f"Time: 2026-03-02T09:15:{n:02}Z {FIXED}"},
                {"role": "user", "content": f"question {n}"},
            ],
        }
        for n in range(count)
    ]
    text = "\n".join(map(json.dumps, requests)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_a_fault_ends_with_one_and_none_with_nought(folder: Path) -> None:
    result = lint("prompts")
    assert result.exit_code == 1
    assert "prompts/a.jinja:1:1" in result.stdout
    assert "time-before-fixed" in result.stdout
    assert "b.jinja" not in result.stdout
    assert lint("prompts/b.jinja").exit_code == 0


def test_from_which_level_on_it_fails_is_asked(folder: Path) -> None:
    codes = [lint("prompts", "--fail-on", level).exit_code for level in ("note", "warning", "error", "never")]
    assert codes == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "nothing to read"),
        (("nowhere",), "there is no nowhere"),
        (("prompts", "--ignore", "no-such"), "no-such"),
        (("prompts", "--settings", "nowhere.yaml"), "nowhere.yaml"),
        (("prompts", "--baseline", "prompts/a.jinja"), "a.jinja"),
        (("prompts", "--price-per-mtok", "dear"), "dear"),
        (("prompts", "--prices", "p.yaml"), "--price-of"),
        (("prompts", "--model", "prompts"), "--model"),
        (("--from-ledger",), "period"),
        (("--live",), "token"),
    ],
)
def test_what_cannot_be_used_ends_with_two_and_says_what(folder: Path, arguments: tuple[str, ...], word: str) -> None:
    result = lint(*arguments)
    assert result.exit_code == 2
    assert word in result.stderr


def test_a_line_for_people_fits_eighty_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    captured(folder / "c.jsonl")
    (folder / "prompts" / "broken.py").write_text("prompt = (")
    result = lint("prompts", "c.jsonl", "--calls-per-day", 1000, "--price-per-mtok", "3:0.3")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "not read: prompts/broken.py" in result.stdout


def test_json_has_the_place_the_loss_and_the_fix(folder: Path) -> None:
    found = data("prompts")
    (one,) = found["findings"]
    assert (one["path"], one["line"], one["lost_tokens_per_call"]) == ("prompts/a.jinja", 1, LOST)
    assert one["fix"]
    assert (found["files"], found["skipped"], found["tokens_per_day"]) == (2, [], None)


def test_sarif_is_printed_whole(folder: Path) -> None:
    log = json.loads(lint("prompts", "--sarif").stdout)
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["time-before-fixed"]


def test_what_it_costs_is_told_by_day_and_is_unknown_without_calls(folder: Path) -> None:
    priced = data("prompts", "--calls-per-day", 1000, "--price-per-mtok", "3:0.5", "--repeat", 0.5)
    tokens = LOST * 1000 // 2
    assert priced["tokens_per_day"] == tokens
    assert float(priced["cost_per_day"]) == pytest.approx(tokens * 2.5 / 1e6, abs=0.005)
    assert not priced["cost_is_at_most"]
    assert data("prompts", "--calls-per-day", 10, "--price-per-mtok", "3")["cost_is_at_most"]


def test_prices_come_from_a_price_book_too(folder: Path) -> None:
    (folder / "p.yaml").write_text(
        "currency: EUR\nprices:\n  - {id: p, model: m, input_per_mtok: 2.00, cached_input_per_mtok: 0.50, "
        "output_per_mtok: 4.00, from: 2024-01-01T00:00:00Z}\n"
    )
    found = data("prompts", "--prices", "p.yaml", "--price-of", "m", "--calls-per-day", 1_000_000)
    assert found["currency"] == "EUR"
    assert float(found["cost_per_day"]) == pytest.approx(LOST * 1.5)
    assert lint("prompts", "--prices", "p.yaml", "--price-of", "another").exit_code == 2


def test_repetition_is_measured_of_captures_in_the_same_run(folder: Path) -> None:
    captured(folder / "c.jsonl", 4)
    same = {"model": "m", "messages": [{"role": "system", "content": FIXED}, {"role": "user", "content": "x"}]}
    (folder / "d.jsonl").write_text("\n".join([json.dumps(same)] * 6))
    assert data("prompts", "c.jsonl", "d.jsonl")["repeat"] == 0.5
    assert data("prompts")["repeat"] == 1


def test_faults_of_one_prompt_are_counted_once_and_a_date_once_a_day() -> None:
    place = Place("a.py")
    faults = [
        Finding(TIME, place, lost_tokens=800, prompt="p"),
        Finding(DATE, place, lost_tokens=640, every=Every.DAY, prompt="p"),
        Finding(USER, place, lost_tokens=320, every=Every.SESSION, prompt="q"),
    ]
    assert total_lost(faults) == 1120
    costs = Costs(calls_per_day=100)
    assert [costs.tokens_a_day(one) for one in faults] == [80_000, 640, None]
    assert total_a_day(faults, costs) == 80_000
    assert total_a_day(faults[2:], costs) is None


def test_captures_are_read_packed_or_not_and_show_text_only_where_asked(folder: Path) -> None:
    captured(folder / "c.jsonl.gz")
    result = lint("c.jsonl.gz")
    assert "time-before-fixed" in result.stdout
    assert "in 3 of 4 requests" in " ".join(result.stdout.split())
    assert "Be kind" not in result.stdout
    assert "Be kind" in lint("c.jsonl.gz", "--show-text").stdout


def test_settings_of_the_folder_leave_out_rules_and_paths(folder: Path) -> None:
    settings = folder / ".prefixgate-lint.yaml"
    settings.write_text("ignore: [time-before-fixed]\n")
    assert lint("prompts").exit_code == 0
    settings.write_text("exclude: [prompts/a.*]\n")
    assert data("prompts")["files"] == 1
    settings.unlink()
    assert lint("prompts", "--ignore", "time-before-fixed").exit_code == 0
    assert lint("prompts", "--exclude", "prompts/a.jinja").exit_code == 0


def test_a_baseline_lets_pass_what_was_there_and_nothing_new(folder: Path) -> None:
    assert lint("prompts", "--write-baseline", "base.json").exit_code == 0
    assert lint("prompts", "--baseline", "base.json").exit_code == 0
    (folder / "prompts" / "a.jinja").write_text("Hello.\n\n{{ request_id }}" + TIMED)
    found = data("prompts", "--baseline", "base.json")
    assert [one["rule"] for one in found["findings"]] == ["id-before-fixed"]
    assert found["in_baseline"] == 1


def test_what_cannot_be_read_is_named_and_does_not_stop_the_rest(folder: Path) -> None:
    prompts = folder / "prompts"
    (prompts / "broken.py").write_text("prompt = (")
    (prompts / "latin.md").write_bytes(b"prompt \xff\xfe")
    (prompts / "gone.py").symlink_to(folder / "nowhere.py")
    (prompts / "large.json").write_bytes(b" " * (2 * 1024 * 1024 + 1))
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}" * 1000)[:20])
    os.mkfifo(prompts / "pipe.py")
    found = data("prompts", "cut.jsonl.gz")
    assert len(found["findings"]) == 1
    assert {Path(one["path"]).name for one in found["skipped"]} == {
        *("broken.py", "latin.md", "gone.py", "large.json", "cut.jsonl.gz", "pipe.py")
    }


def test_where_nothing_could_be_read_it_ends_with_two(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    assert lint("broken.json").exit_code == 2
    assert lint("broken.json", "prompts/b.jinja").exit_code == 0
    assert lint("broken.json", "prompts").exit_code == 1
    (folder / "empty").mkdir()
    assert lint("empty").exit_code == 0


def test_a_walk_leaves_out_what_others_wrote_and_follows_no_links(folder: Path) -> None:
    for name in ("node_modules", ".venv", "lib/site-packages", "__pycache__"):
        inside = folder / "prompts" / name
        inside.mkdir(parents=True)
        (inside / "x.jinja").write_text(TIMED)
    (folder / "prompts" / "loop").symlink_to(folder / "prompts")
    assert data("prompts")["files"] == 2
    assert data("prompts/lib/site-packages")["files"] == 1


def test_no_further_file_is_read_when_the_time_is_up(folder: Path) -> None:
    result = lint("prompts", "--time-limit-s", 0, "--json")
    (skipped,) = json.loads(result.stdout)["skipped"]
    assert "2 files were not read" in skipped["why"]
    assert result.exit_code == 2


def test_a_chat_template_that_writes_the_date_is_tried_out(folder: Path) -> None:
    template = folder / "chat.jinja"
    template.write_text(DATED)
    model = ensure_model("tiny")
    captured(folder / "c.jsonl", 1)
    found = data("c.jsonl", "--model", model, "--chat-template", template)["findings"]
    (dated,) = [one for one in found if one["rule"] == "template-date"]
    assert (dated["every"], dated["path"], dated["request"]) == ("day", "c.jsonl", 1)
    assert dated["lost_tokens_per_call"] > 0
    assert [one for one in data("c.jsonl", "--model", model)["findings"] if one["rule"] == "template-date"] == []


def test_a_model_counts_the_tokens(folder: Path) -> None:
    (folder / "prompts" / "a.jinja").write_text("{{ now }}" + "qxzvkj" * 40)
    estimated = data("prompts")["findings"][0]["lost_tokens_per_call"]
    counted = data("prompts", "--model", ensure_model("tiny"))["findings"][0]["lost_tokens_per_call"]
    assert (estimated, counted > 60) == (48, True)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "max_tokens": 1, "system": "s", "messages": [{"role": "user", "content": "a"}]},
        {"model": "m", "input": "a", "instructions": "b"},
        {"model": "m", "prompt": "a"},
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"model": "m", "messages": [{"role": 1}]},
    ],
)
def test_a_template_is_tried_out_with_bodies_of_every_dialect(folder: Path, body: dict[str, Any]) -> None:
    (folder / "c.json").write_text(json.dumps(body))
    (folder / "chat.jinja").write_text(DATED)
    result = lint("c.json", "--model", ensure_model("tiny"), "--chat-template", folder / "chat.jinja", "--json")
    assert result.exit_code in (0, 1)
    assert "template-date" in result.stdout
