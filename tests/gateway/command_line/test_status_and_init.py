"""`prefixgate status` shows a running gateway; `prefixgate init` writes a configuration to start one with."""

import asyncio
import json
import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backends.reference.embedded import RunningEngine
from gateway.cli import cli
from gateway.config import load_config
from gateway.edge.auth import load_keys
from tests.gateway.conftest import RunningGateway, StartGateway
from tests.hostile import HostileServer, answer, close_before_first_byte

MADE = ("prefixgate.yaml", "keys.yaml", "salt.secret", "admin.token", "ui.token")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], env={"COLUMNS": "300"})


@pytest.fixture
def gateway(engine: RunningEngine, start_gateway: StartGateway, token_file: Path) -> RunningGateway:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        return start_gateway(engine.url, f"http://127.0.0.1:{taken.getsockname()[1]}", admin_token_file=token_file)


def test_status_says_who_is_up_who_is_not_and_why(gateway: RunningGateway, token_file: Path) -> None:
    shown = run("status", "--gateway", gateway.url, "--token-file", str(token_file))
    assert shown.exit_code == 0, shown.output
    assert re.search(rf"^{gateway.url}, prefixgate [^ ]+: ready, degraded, at ", shown.stdout)
    assert "1 of 2 endpoints up, 0 requests under way" in shown.stdout
    assert "degraded, endpoints: down: e1" in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines() if re.match(r" *e\d ", line)]
    assert [(row[0], row[1]) for row in rows] == [("e1", "down"), ("e0", "up")]
    assert "cannot connect" in " ".join(rows[0])


def test_without_a_token_status_shows_what_anybody_may_see(gateway: RunningGateway) -> None:
    found = json.loads(run("status", "--gateway", gateway.url, "--json").stdout)
    assert [(row["endpoint"], row["up"], row["running_requests"]) for row in found["endpoints"]] == [
        ("e0", True, None),
        ("e1", False, None),
    ]


def test_status_looks_again_and_again_a_line_of_json_each(gateway: RunningGateway) -> None:
    shown = run("status", "--gateway", gateway.url, "--json", "--watch", "--looks", "3", "--every-s", "0.1")
    assert shown.exit_code == 0
    assert [json.loads(line)["ready"] for line in shown.stdout.splitlines()] == [True] * 3


def test_a_gateway_on_this_machine_is_not_asked_through_a_proxy(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert run("status", "--gateway", gateway.url).exit_code == 0


def test_status_of_a_gateway_that_nobody_can_be_served_by_fails(start_gateway: StartGateway) -> None:
    gateway = start_gateway("http://127.0.0.1:9")
    shown = run("status", "--gateway", gateway.url)
    assert shown.exit_code == 1
    assert "cannot serve" in shown.stdout


def test_a_wrong_token_and_what_is_no_gateway_are_said(
    gateway: RunningGateway, engine: RunningEngine, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another")
    refused = run("status", "--gateway", gateway.url, "--token-file", str(wrong))
    assert (refused.exit_code, "has another admin token" in refused.stderr) == (2, True)
    other = run("status", "--gateway", engine.url)
    assert (other.exit_code, "it is no gateway" in other.stderr) == (1, True)


@pytest.mark.parametrize(
    "says",
    [
        b"[1]",
        b"{}",
        b'{"status": 5, "ready": true, "endpoints": [1], "detail": "x"}',
        b'{"status": "ok", "ready": true, "endpoints": {"e1": 5}, "detail": "x"}',
        b'{"status": "ok", "ready": true, "endpoints": {"e1": {"standing": 7}}, "degraded": 3, "detail": "x"}',
    ],
)
@pytest.mark.parametrize("command", ["status", "status --json", "index show", "index top", "explain x"])
async def test_what_only_looks_like_a_gateway_is_said(command: str, says: bytes, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    async with HostileServer([answer(says, requests=1)]) as server:
        options = (*command.split(), "--gateway", server.url, "--token-file", str(token))
        refused = await asyncio.to_thread(run, *options)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "Traceback" not in refused.stderr
    assert isinstance(refused.exception, SystemExit)


@pytest.mark.parametrize("content", ["one line\nsecret-another", "secret-ü", "secret-\x1b[31m"])
def test_a_token_file_that_holds_no_token_is_said_without_it(content: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(content)
    refused = run("status", "--gateway", "http://127.0.0.1:1", "--token-file", str(token))
    assert (refused.exit_code, "is it the right file?" in refused.stderr) == (2, True)
    assert "secret" not in refused.output


async def test_a_watch_goes_on_while_the_gateway_is_away_and_sees_it_come_back() -> None:
    there = answer(b'{"status": "ok", "ready": true, "endpoints": {}}', requests=1)
    away = close_before_first_byte
    async with HostileServer([there, there, away, away, there, there, there, there, away, there]) as server:
        watch = ("status", "--watch", "--every-s", "0.1", "--json", "--gateway", server.url)
        seen = await asyncio.to_thread(run, *watch, "--looks", "4")
        lost = await asyncio.to_thread(run, *watch, "--looks", "2")
    gone = await asyncio.to_thread(run, *watch, "--looks", "3")
    found = [(one.exit_code, one.stdout.count("\n"), one.stderr.count("gateway_away")) for one in (seen, lost, gone)]
    assert found == [(0, 2, 2), (1, 1, 1), (1, 0, 1)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_init_writes_can_be_read_and_its_keys_and_token_work(here: Path) -> None:
    made = run("init", "--backend", "http://a:8000", "--backend", "http://b:8000", "--tenant", "acme", "--admin")
    assert made.exit_code == 0, made.output
    assert sorted(path.name for path in here.iterdir()) == sorted(MADE)
    assert [(here / name).stat().st_mode & 0o777 for name in MADE[1:]] == [0o600] * 4
    config = load_config(Path("prefixgate.yaml"), {}, {})
    assert [backend.name for backend in config.backends] == ["a-8000", "b-8000"]
    key = made.stdout.partition("shown only now:  ")[2].split()[0]
    assert load_keys(Path("keys.yaml"), b"").tenant_of(((b"x-api-key", key.encode()),)).id == "acme"
    assert key not in "".join(Path(name).read_text() for name in MADE)
    tokens = [Path(name).read_text().strip() for name in MADE[2:]]
    assert all(len(token) > 40 and token not in made.output for token in tokens)
    assert len(set(tokens)) == 3
    assert (config.salt_secret_file, config.admin_token_file) == (Path("salt.secret"), Path("admin.token"))
    assert config.ui.token_file == Path("ui.token")
    assert "http://127.0.0.1:8080/ui, with the token in ui.token" in made.stdout


def test_a_key_that_init_made_is_listed_as_one_of_keys_create(here: Path) -> None:
    made = run("init", "--tenant", "acme")
    key = made.stdout.partition("shown only now:  ")[2].split()[0]
    (row,) = json.loads(run("keys", "list", "-c", "prefixgate.yaml", "--json").stdout)
    assert (row["tenant"], row["key"], row["prefix"], row["state"]) == ("acme", "acme-1", key[:8], "works")
    assert row["created_at"].endswith("Z")


def test_every_line_that_init_comments_out_is_a_key_that_there_is(here: Path) -> None:
    assert run("init").exit_code == 0
    text = Path("prefixgate.yaml").read_text()
    whole = re.sub(r"^#(?=[a-z_]+: )", "", text, flags=re.MULTILINE)
    kept = whole.replace("ledger: {path: prefixgate.db}\n", "")  # it is in another place or the other
    Path("whole.yaml").write_text(kept)
    config = load_config(Path("whole.yaml"), {}, {})
    assert config.index.redis_url is not None
    assert config.ledger.url is not None
    assert list(config.models) == ["llama-3.1-8b"]
    assert (config.isolation, str(config.prices_file)) == ("none", "prices.yaml")
    assert str(config.ui.token_file) == "ui.token"


def test_init_writes_over_nothing_unless_it_is_told_to(here: Path) -> None:
    (here / "keys.yaml").write_text("mine")
    refused = run("init", "--tenant", "acme")
    assert (refused.exit_code, "keys.yaml: there already" in refused.stderr) == (2, True)
    assert [path.name for path in here.iterdir()] == ["keys.yaml"]
    assert run("init", "--tenant", "acme", "--force").exit_code == 0
    assert "mine" not in (here / "keys.yaml").read_text()
    assert run("init", "--tenant", "we ird", "--force").exit_code == 2


def test_init_refuses_an_address_that_serve_would_refuse(here: Path) -> None:
    refused = run("init", "--backend", "gpu-a:8000")
    assert (refused.exit_code, list(here.iterdir())) == (2, [])
    assert "endpoint gpu-a:8000: the URL must start with http:// or https://" in refused.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--backend", "http://gpu-a:8000", "--backend", "http://gpu-a:8000"), "two backends are called gpu-a-8000"),
        (("--redis-url", "nope"), "index.redis_url: the URL must start with"),
        (("--tenant", "acme", "--output", "."), "give the name of a file"),
        (("--tenant", "acme", "--output", "keys.yaml"), "none of those that are written beside it"),
        (("--admin", "--output", "admin.token"), "none of those that are written beside it"),
    ],
)
def test_init_writes_nothing_that_check_would_refuse(given: tuple[str, ...], says: str, here: Path) -> None:
    refused = run("init", *given)
    assert (refused.exit_code, list(here.iterdir())) == (2, [])
    assert says in refused.stderr


def test_a_tenant_whose_name_means_something_to_yaml_is_a_tenant(here: Path) -> None:
    odd = ["null", "true", "12", "1e3", "0x1f"]
    assert (
        run("init", "--backend", "http://a:8000", *(part for name in odd for part in ("--tenant", name))).exit_code == 0
    )
    listed = json.loads(run("keys", "list", "--file", "keys.yaml", "--json").stdout)
    assert [(row["tenant"], row["key"]) for row in listed] == [(name, f"{name}-1") for name in odd]
    entry = run("keys", "new", "null", "--id", "1.5").stdout.partition("tenants:\n")[2].partition("\n\n")[0]
    (here / "other.yaml").write_text(f"tenants:\n{entry}\n")
    [row] = json.loads(run("keys", "list", "--file", "other.yaml", "--json").stdout)
    assert (row["tenant"], row["key"]) == ("null", "1.5")


def test_init_says_where_it_cannot_write(here: Path) -> None:
    (here / "file").write_text("")
    refused = run("init", "--output", "file/prefixgate.yaml")
    assert (refused.exit_code, "file/prefixgate.yaml" in refused.stderr) == (1, True)
