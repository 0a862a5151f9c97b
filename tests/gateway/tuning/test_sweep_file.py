"""Sweeps as files say them."""

import re
from pathlib import Path

import pytest

from gateway.tuning.errors import SweepInvalid
from gateway.tuning.questions import held_text, questions
from gateway.tuning.sweep_file import Limits, Load, Questions, Sweep, read_sweep
from gateway.tuning.trying import planned


def sweep_of(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return read_sweep(path)


def test_a_grid_is_every_combination_the_last_key_fastest(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "command: run {port} {a} {b}\ngrid: {a: [1, 2], b: [x, y]}\nsettings: [{a: 3, b: z}]")
    assert [tuple(one.values()) for one in sweep.all_settings()] == [(1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "z")]


def test_the_baseline_comes_first(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "command: run {port} {a}\ngrid: {a: [1, 2, 3]}\nbaseline: {a: 2}")
    assert [one["a"] for one in sweep.all_settings()] == [2, 1, 3]


def test_a_setting_that_the_grid_has_is_tried_once(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "command: run {port} {a}\ngrid: {a: [1, 2]}\nsettings: [{a: 2}]")
    assert [one["a"] for one in sweep.all_settings()] == [1, 2]


def test_a_placeholder_stands_for_a_part_of_a_word_a_word_or_several(tmp_path: Path) -> None:
    sweep = sweep_of(
        tmp_path,
        """
        command: "run --port {port} --kv={kv} {flags} --conf '{\\"a\\": 1}' {none}"
        settings: [{kv: q8_0, flags: [--fast, 'on now'], none: ''}]
        """,
    )
    [setting] = sweep.all_settings()
    words = ["run", "--port", "80", "--kv=q8_0", "--fast", "on now", "--conf", '{"a": 1}']
    assert sweep.words_of(setting, 80) == words


def test_no_shell_reads_a_value(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "command: run {port} {a}\nsettings: [{a: '1; rm -rf $HOME'}]")
    assert sweep.words_of(sweep.all_settings()[0], 1) == ["run", "1", "1; rm -rf $HOME"]


def test_url_model_and_environment_have_placeholders_too(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "url: http://{host}:8000\nmodel: '{host}-7b'\nsettings: [{host: gpu-a}]")
    [setting] = sweep.all_settings()
    assert (sweep.url_of(setting, 0), sweep.model_of(setting)) == ("http://gpu-a:8000", "gpu-a-7b")
    started = sweep_of(tmp_path, "command: run {port}\nenvironment: {N: '{n}'}\nsettings: [{n: 2}]")
    assert started.environment_of({"n": 2}, 1) == {"N": "2"}


def test_files_count_from_where_the_sweep_is(tmp_path: Path) -> None:
    sweep = sweep_of(
        tmp_path, "url: http://a\nsettings: [{}]\nquality: {text: held.txt}\nload: {corpus: /srv/chats.jsonl}"
    )
    assert (sweep.quality.text, sweep.load.corpus) == (tmp_path / "held.txt", Path("/srv/chats.jsonl"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("settings: [{a: 1}]", "either a command"),
        ("command: run {port}\nurl: http://a\nsettings: [{}]", "either a command"),
        ("command: run {a}\nsettings: [{a: 1}]", "{port} is where"),
        ("command: run {port} {a} {b}\ngrid: {a: [1]}", "no value for b in a=1"),
        ("command: run {port}\ngrid: {a: [1]}", "no place for a"),
        ("command: run {port}", "neither a grid nor settings"),
        ("command: run {port} {a}\ngrid: {a: []}", "grid.a"),
        ("command: run {port} {a}\ngrid: {a: [1]}\nbaseline: {a: 2}", "none of the settings"),
        ("command: run {port} {a}\ngrid: {a: [1]}\nfront: [output_tokens_per_s]", "speed alone says nothing"),
        ("command: run {port} {a}\ngrid: {a: [1]}\nfront: [perplexity, perplexity]", "stands twice"),
        ("command: run {port} {a}\ngrid: {a: [1]}\nquality: {off: true}", "unknown key"),
        ("url: http://a\nsettings: [{}]\nload: {clients: 1, rate: 2}", "closed or open"),
        ("url: http://a\nsettings: [{}]\nload: {load: hot-prefix, trace: t.jsonl}", "only one of"),
        ("url: http://a\nsettings: [{}]\nload: {load: nope}", "built-in loads are"),
        ("command: 'run {port} \"'\nsettings: [{}]", "No closing quotation"),
        ("command: run {port} {a}\ngrid: {a: [1, 1]}", "a setting stands twice"),
        ("command: run {port} {a}\ngrid: {a: [.inf]}", "a value is a text, a number"),
        ("command: run {port} {a}\ngrid: {a: [~]}", "a value is a text, a number"),
        ('command: run {port} {a}\ngrid: {a: ["b\\0"]}', "no process can be given"),
        ('command: run {port} {a}\ngrid: {a: ["\\ud800"]}', "no process can be given"),
        ("command: run {port}\nsettings: [{}]\nenvironment: {A=B: x}", "no process can be given"),
        ("url: http://a\nsettings: [{}]\nload: {seconds: .inf}", "load.seconds"),
        ("url: http://a\nsettings: [{}]\nload: {clients: 100000}", "load.clients"),
        ("a: b: c", "mapping values"),
        ("[1]", "sweep.yaml: "),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SweepInvalid, match=r"sweep\.yaml") as refused:
        sweep_of(tmp_path, text)
    assert why in str(refused.value)


def test_one_and_true_are_two_settings(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "command: run {port} {a}\ngrid: {a: [1]}\nsettings: [{a: true}, {a: 1.0}]")
    assert [sweep.words_of(one, 1) for one in sweep.all_settings()] == [
        ["run", "1", value] for value in ("1", "true", "1.0")
    ]


def test_a_sweep_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SweepInvalid, match="No such file"):
        read_sweep(tmp_path / "none.yaml")


def test_our_own_questions_are_tasks_and_open_ones_and_our_text_is_long_enough_to_tell() -> None:
    asked = questions(None, 48)
    tasks = [one for one in asked if one.answers]
    assert (len(tasks), len(asked) - len(tasks)) == (24, 8)
    assert {one.most_tokens for one in asked if not one.answers} == {48}
    assert len({one.prompt for one in asked}) == len(asked)
    assert len(held_text(None).split()) > 300


@pytest.mark.parametrize("text", ["- {prompt: ''}", "- {prompt: a, right: b}", "a: b: c", "- 1"])
def test_questions_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(text)
    with pytest.raises(SweepInvalid, match=r"q\.yaml"):
        questions(path, 1)


def test_a_text_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(SweepInvalid, match="UTF-8"):
        held_text(path)
    with pytest.raises(SweepInvalid, match="No such file"):
        held_text(tmp_path / "none")


def test_the_sweep_on_the_page_can_be_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "tune.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert sweep_of(tmp_path, block).all_settings()


def test_every_key_of_a_sweep_is_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tune.md").read_text()
    keys = {name for kind in (Sweep, Load, Questions, Limits) for name in kind.model_fields}
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_what_a_load_reads_is_part_of_what_is_measured(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "url: http://a\nsettings: [{}]\nload: {corpus: chats.jsonl}")
    with pytest.raises(SweepInvalid, match=r"chats\.jsonl"):
        planned(sweep)
    keys = set()
    for text in ("{}\n", "{} \n"):
        (tmp_path / "chats.jsonl").write_text(text)
        keys.add(planned(sweep)[0].key)
    assert len(keys) == 2


@pytest.mark.parametrize("name", ["llamacpp.yaml", "reference.yaml"])
def test_the_sweeps_of_the_repository_can_be_run(name: str) -> None:
    assert len(planned(read_sweep(Path(__file__).parents[3] / "bench" / "sweeps" / name))) > 1


def test_a_grid_of_more_settings_than_anybody_waits_for_is_refused_at_once(tmp_path: Path) -> None:
    names = "abcdefgh"
    places = " ".join(f"{{{name}}}" for name in names)
    grid = ", ".join(f"{name}: {list(range(100))}" for name in names)
    with pytest.raises(SweepInvalid, match="more than 10,000 settings"):
        sweep_of(tmp_path, f"command: run {{port}} {places}\ngrid: {{{grid}}}")
