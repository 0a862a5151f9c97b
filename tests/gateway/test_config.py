"""The configuration: file, then environment, then flags; unknown keys are errors; secrets stay secret."""

import re
from pathlib import Path

import pytest

from gateway.config import Backend, Config, ConfigInvalid, Index, backend_key, load_config, redis_access, salt_secret
from gateway.strict_yaml import load_yaml

KV_EVENTS = Path(__file__).parents[2] / "docs" / "kv-events.md"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_no_file_is_needed() -> None:
    config = load_config(None, {}, {"backends": [{"url": "http://a:8000"}]})
    assert config.backends[0].name == "a-8000"
    assert config.listen.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("url", "name"),
    [("http://a:8000/base/", "a-8000-base"), ("a:8000", "a-8000"), ("http://me:hunter2@a/x@y", "a-x-y")],
)
def test_a_backend_without_an_id_is_called_by_its_place_and_never_by_a_password(url: str, name: str) -> None:
    assert Backend(url=url).name == name


def test_the_environment_beats_the_file_and_flags_beat_both(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "listen: {port: 1, host: 0.0.0.0}\nindex: {deadline_ms: 3}")
    environment = {"PREFIXGATE_LISTEN__PORT": "2", "PREFIXGATE_INDEX__DEADLINE_MS": "4", "PATH": "/bin"}
    config = load_config(path, environment, {"listen.port": 3, "listen.host": None})
    assert (config.listen.port, config.listen.host, config.index.deadline_ms) == (3, "0.0.0.0", 4.0)


def test_lists_and_maps_come_from_the_environment_as_json() -> None:
    config = load_config(None, {"PREFIXGATE_BACKENDS": '[{"url": "http://a"}, {"url": "http://b/base"}]'}, {})
    assert [backend.name for backend in config.backends] == ["a", "b-base"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lisen: {port: 1}", "lisen"),
        ("listen: {prt: 1}", r"listen\.prt"),
        ("listen: {port: 70000}", r"listen\.port"),
        ("scheduling: {policy: luck}", r"scheduling\.policy"),
        ("ledger: {chain_tokens: 8}", r"^ledger\.chain_tokens: Input should be greater than or equal to 16$"),
        (
            "ledger: {chain_tokens: 1000000000000000000000000000000}",
            r"^ledger\.chain_tokens: Input should be less than",
        ),
        ("index: {block_size: 1000000000000000000}", r"^index\.block_size: Input should be less than"),
        ("backends: [{url: 'http://a'}, {url: 'http://a'}]", "two backends"),
        (
            "backends: [{url: 'http://a', kv_events: {url: 'tcp://e:1'}}, "
            "{url: 'http://b', kv_events: {url: 'tcp://e:1', topic: t}}]",
            "a and b share the kv_events.url tcp://e:1",
        ),
        (
            "backends: [{url: 'http://a', kv_events: {url: 'tcp://engine:x'}}]",
            "tcp://engine:x: it needs a host and a port",
        ),
        ("backends: [{url: 'http://a', kv_events: {url: 'http://e:1'}}]", "neither tcp://host:port nor ipc://path"),
        ("backends: [{url: 'http://a', kv_events: {url: 'ipc:///kv', ranks: 2}}]", "rank 0 alone"),
        ("backends: [{url: 'http://a', kv_events: {url: 'tcp://e:1', replay_url: 'tcp://*:2'}}]", "instead of \\*"),
        ("listen: {port: 1}\nlisten: {host: a}", "'listen' stands twice"),
        ("nonsense: 1", "nonsense: unknown key$"),
        ("backend: [{url: 'http://a'}]", r"backend: unknown key, did you mean backends\?$"),
        ("backends: [{url: 'http://a', kv_event: {mode: off}}]", r"kv_event: unknown key, did you mean kv_events\?$"),
        ("backends: ['http://a:8000']", "backends.0: keys with their values belong here"),
        ("keys_file: /nowhere/keys.yaml\nmodels: {m: {tokeniser: a}}", r"did you mean tokenizer\?$"),
        ("- a", "mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigInvalid, match=complaint):
        load_config(write(tmp_path / "c.yaml", text), {}, {})


def test_on_and_off_are_words_and_only_true_and_false_are_truth_values(tmp_path: Path) -> None:
    (line,) = set(re.findall(r"`(kv_events: \{mode: off\})`", KV_EVENTS.read_text()))
    config = load_config(write(tmp_path / "c.yaml", f"backends:\n  - url: http://a\n    {line}\n"), {}, {})
    assert config.backends[0].kv_events.mode == "off"
    assert load_yaml("[off, on, no, Yes, n, true, False]") == ["off", "on", "no", "Yes", "n", True, False]
    assert not load_config(write(tmp_path / "c.yaml", "index: {embedded: no}"), {}, {}).index.embedded


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"gone\.yaml"):
        load_config(tmp_path / "gone.yaml", {}, {})


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("PREFIXGATE_NONSENSE", "1", "nonsense: unknown key (from the variable PREFIXGATE_NONSENSE)"),
        (
            "PREFIXGATE_LISTEN__PRT",
            "1",
            "listen.prt: unknown key, did you mean port? (from the variable PREFIXGATE_LISTEN__PRT)",
        ),
        (
            "PREFIXGATE_BACKENDS",
            '[{"ur": 1}]',
            "backends.0.ur: unknown key, did you mean url? (from the variable PREFIXGATE_BACKENDS)",
        ),
    ],
)
def test_what_is_wrong_in_a_variable_is_refused_with_its_name(variable: str, text: str, complaint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(None, {variable: text, "PREFIXGATE_LOG_LEVEL": "info"}, {})
    assert complaint in str(caught.value).split("; ")


def test_what_is_wrong_in_a_flag_is_not_blamed_on_the_variable_that_it_overrules() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(None, {"PREFIXGATE_LISTEN__PORT": "2"}, {"listen.port": 70000})
    assert "PREFIXGATE" not in str(caught.value)


def test_a_value_and_a_section_of_one_name_are_told_apart() -> None:
    with pytest.raises(ConfigInvalid, match="listen"):
        load_config(None, {"PREFIXGATE_LISTEN": "x", "PREFIXGATE_LISTEN__PORT": "1"}, {})


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_config(write(tmp_path / "c.yaml", ""), {}, {}) == Config()


def test_a_backends_key_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    key_file = write(tmp_path / "key", "from-file\n")
    assert backend_key(Backend(url="http://a", api_key_file=key_file), {}) == "from-file"
    assert backend_key(Backend(url="http://a", api_key_env="A_KEY"), {"A_KEY": "from-env"}) == "from-env"
    assert backend_key(Backend(url="http://a"), {}) is None


def test_a_secret_that_is_missing_is_named_by_place_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="A_KEY"):
        backend_key(Backend(url="http://a", api_key_env="A_KEY"), {})
    with pytest.raises(ConfigInvalid, match="gone"):
        salt_secret(Config(salt_secret_file=tmp_path / "gone"))
    assert salt_secret(Config()) == b""


def test_the_passwords_of_redis_and_sentinels_come_from_files_or_variables(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", "hunter2\n")
    index = Index(redis_username="me", redis_password_file=secret, sentinel_password_env="THEIRS")
    access = redis_access(index, {"THEIRS": "hunter3"})
    assert (access.username, access.password, access.sentinel_password) == ("me", "hunter2", "hunter3")
    assert "hunter" not in repr(access)
    assert redis_access(Index(), {}).password is None


def test_one_password_is_enough(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="index: the password is given twice"):
        load_config(None, {}, {"index.redis_password_file": "f", "index.redis_password_env": "V"})


@pytest.mark.parametrize(
    "given",
    [{"scheduling.prefill_tokens_per_s": value} for value in (float("inf"), float("nan"), 1e300, 5e-324, 0.0)]
    + [
        {f"scheduling.{name}": value}
        for name in ("base_s", "quad_s_per_token2", "itl_s")
        for value in (float("inf"), 1e9)
    ]
    + [{"scheduling.near_tie_s": float("inf")}, {"limits.idle_s": float("inf")}]
    + [{"backends": [{"url": "http://a", "prefill_tokens_per_s": value}]} for value in (float("inf"), 1e300)],
)
def test_a_speed_that_no_machine_has_is_refused_rather_than_computed_with(given: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=r"Input should be|finite"):
        load_config(None, {}, {"backends": [{"url": "http://a"}], **given})
