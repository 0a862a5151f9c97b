"""The commands refuse what cannot work, with exit code 2 and a text that says what; `check` proves token parity."""

import importlib.metadata
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.checking import ask_backends
from gateway.cli import cli
from gateway.config import Config, load_config
from gateway.edge.auth import load_keys
from tests.backends.engine_page import EnginePage

BACKEND = "backends: [{url: 'http://127.0.0.1:9'}]\n"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("log_level: info", "no backend"),
        (BACKEND + "keys_file: gone.yaml", "gone.yaml"),
        (BACKEND + "prices_file: gone.yaml", "gone.yaml"),
        (BACKEND + "admin_token_file: gone", "gone"),
        (BACKEND + "models: {m: {tokenizer: gone}}", "gone"),
        (BACKEND + "ledger: {path: gone/ledger.db}", "there is no folder"),
        (BACKEND + BACKEND, "'backends' stands twice"),
        (BACKEND + "index: {redis_url: 'http://redis'}", "index.redis_url: the URL must start with redis://"),
        (
            BACKEND + "index: {redis_url: 'redis://me:hunter2/x@a'}",
            "index.redis_url: host 1 of the URL is no HOST:PORT",
        ),
        (BACKEND + "index: {redis_url: 'redis://a', redis_password_env: NO_SUCH}", "NO_SUCH is not set"),
        (BACKEND + "index: {redis_url: 'redis://:x@a', redis_password_env: NO_SUCH}", "the password is given twice"),
        (
            BACKEND + "index: {redis_url: 'rediss://a', redis_ca_file: gone.pem}",
            "files for TLS to Redis cannot be used",
        ),
        ("backends: [{url: 'gpu-a:8000'}]", "endpoint gpu-a-8000: the URL must start with http://"),
        ("backends: [{url: 'http://me:hunter2@a'}]", "endpoint a: the URL must not carry credentials"),
        ("backends: [{url: 'http://a', api_key_env: NO_SUCH}]", "NO_SUCH is not set"),
    ],
)
@pytest.mark.parametrize("command", ["check", "serve"])
def test_check_and_serve_refuse_alike_what_cannot_be_used(
    command: str, config: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(config)
    result = CliRunner().invoke(cli, [command, "-c", "c.yaml"])
    assert result.exit_code == 2
    assert complaint in result.output
    assert "hunter2/x" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_a_gateway_that_cannot_start_ends_with_three_and_says_why_as_a_line_of_json(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "gateway", "serve", "--backend", "http://127.0.0.1:9", "--port", port]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert "address already in use" in json.loads(ended.stderr.splitlines()[-1])["message"]


def test_check_prints_no_password_of_an_address(tmp_path: Path) -> None:
    for url in ("redis://me:hunter2@127.0.0.1:1", "rediss+cluster://:hunter2@127.0.0.1:1,b"):
        config = tmp_path / "c.yaml"
        config.write_text(f"backends: [{{url: 'http://127.0.0.1:1'}}]\nindex: {{redis_url: '{url}'}}\n")
        printed = CliRunner().invoke(cli, ["check", "-c", str(config), "--no-proof", "-v"]).output
        assert f"{url.partition(':')[0]}://***@127.0.0.1:1" in printed
        assert "hunter2" not in printed


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"prefixgate {importlib.metadata.version('prefixgate')}\n"


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    config = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)
    with run_engine(config) as running:
        yield running


def check(tmp_path: Path, url: str, *options: str, template: str | None = None) -> Result:
    """`prefixgate check` of one backend with a local tokenizer; `template` stands in for the engine's own."""
    model = {"tokenizer": str(ensure_model("tiny"))}
    if template is not None:
        (tmp_path / "t.jinja").write_text(template)
        model["chat_template"] = str(tmp_path / "t.jinja")
    config = tmp_path / "c.yaml"
    ledger = {"path": str(tmp_path / "ledger.db")}
    config.write_text(yaml.safe_dump({"backends": [{"url": url}], "models": {"tiny": model}, "ledger": ledger}))
    return CliRunner().invoke(cli, ["check", "-c", str(config), *options])


def last_line(result: Result) -> str:
    return result.output.splitlines()[-1]


def test_check_proves_that_our_tokens_are_the_engines(engine: RunningEngine, tmp_path: Path) -> None:
    result = check(tmp_path, engine.url, "--verbose")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("usable: 1 of 1 backend up, 0 of 15 probes differ\n")
    assert last_line(result).startswith("token parity: 15 of 15 agree (100.0%)")
    row = next(line for line in result.output.splitlines() if "multi-turn" in line)
    _, model, _, tokenizer, ours, engine_tokens, ids, verdict = re.split(r"  +", row.strip())
    assert (model, tokenizer, ids, verdict) == ("tiny", "local", "yes", "equal")
    assert ours == engine_tokens


def test_check_fails_on_a_wrong_template_and_shows_where(engine: RunningEngine, tmp_path: Path) -> None:
    wrong = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    result = check(tmp_path, engine.url, template=wrong)
    assert result.exit_code == 1
    assert last_line(result) == "token parity: 2 of 15 agree (13.3%)"
    assert any("plain" in line and "no, from 0" in line and "different" in line for line in result.output.splitlines())


def test_check_without_the_proof_sends_no_prompts(engine: RunningEngine, tmp_path: Path) -> None:
    before = engine.stats()
    result = check(tmp_path, engine.url, "--no-proof", template="wrong")
    assert result.exit_code == 0
    assert "parity" not in result.output
    assert engine.stats() == before


def test_check_of_a_backend_that_is_away_shows_why_and_fails(tmp_path: Path) -> None:
    result = check(tmp_path, "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "cannot connect" in result.output
    assert last_line(result) == "token parity: nothing could be compared"


TGI_PAGES = {
    "/v1/models": (200, b'{"data":[{"id":"m","owned_by":"m"}]}'),
    "/metrics": (200, b"tgi_queue_size 3\n"),
    "/health": (200, b""),
}


async def test_check_says_what_would_help_a_backend() -> None:
    async with EnginePage.vllm() as vllm, EnginePage(TGI_PAGES) as tgi:
        backends = [{"url": vllm.url, "id": "vllm"}, {"url": tgi.url, "id": "tgi"}]
        findings, proofs, lost = await ask_backends(load_config(None, {}, {"backends": backends}), {}, None)
        helped = {"models": {"m": {"tokenizer": "here"}}, "isolation": "none", "index": {"capacity_blocks": 100}}
        again, _, _ = await ask_backends(Config.model_validate({"backends": backends, **helped}), {}, None)
    assert (proofs, lost) == ([], [])
    advice = {finding.endpoint_id: finding.advice for finding in findings}
    assert advice["vllm"].startswith("start it with --enable-prompt-tokens-details")
    for part in ("billed at the full price", "no cache salt", "index.capacity_blocks"):
        assert part in advice["tgi"]
    assert [finding.advice for finding in again] == [advice["vllm"], advice["tgi"].split("; ")[0]]


@pytest.mark.parametrize("arguments", [["we ird: x"], ["acme", "--id", "a}b"]])
def test_a_key_is_made_only_for_a_name_that_yaml_and_labels_can_hold(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["keys", "new", *arguments])
    assert result.exit_code == 2
    assert "is no name" in result.output


def test_two_keys_of_a_tenant_made_as_the_command_says_are_a_keys_file(tmp_path: Path) -> None:
    first = CliRunner().invoke(cli, ["keys", "new", "acme"]).output
    assert "prefixgate keys new acme --id NAME, such as acme-2" in " ".join(first.split())
    second = CliRunner().invoke(cli, ["keys", "new", "acme", "--id", "acme-2"]).output
    entry = first.split("entry for the keys file:\n\n")[1].split("\n\n")[0]
    [line] = [line for line in second.splitlines() if "sha256" in line]
    (tmp_path / "keys.yaml").write_text(f"{entry}\n{line}\n")
    known = load_keys(tmp_path / "keys.yaml", b"")
    for said in (first, second):
        key = said.splitlines()[0].rpartition(" ")[2]
        assert known.tenant_of(((b"x-api-key", key.encode()),)).id == "acme"


def test_a_report_of_no_period_is_refused() -> None:
    result = CliRunner().invoke(cli, ["report", "--from", "yesterday", "--to", "2026-12-01"])
    assert result.exit_code == 2
    assert "yesterday" in result.output
