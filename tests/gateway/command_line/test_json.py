"""Every command prints JSON as docs/cli.md has it: one document on standard output, and nothing else beside it."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.reference.embedded import RunningEngine
from backends.reference.model_files import ensure_model
from gateway.cli import cli
from tests.billing.economics.fleet import Asked, write
from tests.gateway.command_line.commands import all_commands
from tests.gateway.conftest import MODEL, STORY, StartGateway
from tests.gateway.templates.files import support

DOCS = Path(__file__).parents[3] / "docs"
PERIOD = ("--month", "2025-11")
FILES = {
    "costs.yaml": (
        "currency: USD\nendpoints: [{endpoint: gpu-a, gpu_type: H100, gpus: 1, per_gpu_hour: 2, from: 2020-01-01}]\n"
    ),
    "prices.yaml": "currency: USD\nprices: [{model: llama, from: 2020-01-01, input_per_mtok: 1, output_per_mtok: 2}]\n",
    "seller.yaml": (
        "seller: {name: S}\ncurrency: USD\ntaxes: {standard: {label: VAT, rate_percent: 20}}\n"
        "default_tax: standard\nbuyers: {acme: {name: Acme}, zeta: {name: Zeta}}\n"
    ),
    "questions.yaml": "- {prompt: Hi}\n",
    "request.json": '{"model": "llama", "messages": [{"role": "user", "content": "Hi"}]}',
    "prompt.py": 'SYSTEM = f"It is {datetime.now()}. You are a helpful agent of a shop that sells shoes."\n',
    "config.yaml": (
        "ledger: {path: ledger.db}\ncosts_file: costs.yaml\nprices_file: prices.yaml\ninvoicing_file: seller.yaml\n"
        "keys_file: keys.yaml\ntemplates_dir: templates\n"
    ),
}

SWEEP = """
url: {url}
settings: [{{}}]
load: {{prompt: 8, output: 2, warm: 0, seconds: 0.1}}
quality: {{questions: questions.yaml, open_tokens: 2}}
"""


def invoke(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*arguments])
    assert result.exit_code == code, f"{arguments}: {result.output}"
    return result


def printed(*arguments: str, code: int = 0) -> Any:
    """The whole of standard output, read as JSON."""
    result = invoke(*arguments, code=code)
    assert result.stderr == ""
    return json.loads(result.stdout)


def keys_of(found: Any) -> set[str]:
    """Of an object, or of the first row of a list."""
    if isinstance(found, list):
        assert found, "a list without rows shows no shape"
        return set(found[0])
    return set(found)


def documented() -> Mapping[str, set[str]]:
    """By command, the keys that the page names."""
    section = (DOCS / "cli.md").read_text().partition("## JSON")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `prefixgate ([a-z -]+)` \|[^|]*\|([^|]*)\|", section, flags=re.MULTILINE)
    return {path: set(re.findall(r"`(\w+)`", cells)) for path, cells in rows}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with all files that commands read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFIXGATE_CONFIG", "config.yaml")
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("templates").mkdir()
    Path("templates/support.yaml").write_text(support())
    asyncio.run(write(tmp_path / "ledger.db", [Asked("r1", job="run-1"), Asked("r2", 20, tenant="zeta")]))
    return tmp_path


@pytest.mark.usefixtures("here")
def test_every_command_prints_the_json_that_is_documented(
    engine: RunningEngine, start_gateway: StartGateway, token_file: Path
) -> None:
    shapes = documented()
    seen: set[str] = set()

    def check(path: str, *arguments: str, code: int = 0) -> Any:
        found = printed(*path.split(), *arguments, "--json", code=code)
        assert keys_of(found) == shapes[path], path
        seen.add(path)
        return found

    check("init", "--tenant", "acme", "--admin", "-o", "made/prefixgate.yaml")
    check("keys new", "acme")
    made = check("keys create", "acme", "--budget", "5/day")
    check("keys rotate", made["key_id"])
    check("keys list")
    check("keys revoke", made["key_id"])
    check("prices check")
    assert set(printed("prices", "show", "--json")) == {"llama"}
    seen.add("prices show")
    check("templates show", "support")
    check("templates check")
    check("lint", "prompt.py", "--fail-on", "never")
    check("plan", "qwen3-32b", "--gpu", "h100")
    check("simulate", "--load", "llm-d-73", "--limit-requests", "20", "--policy", "rr")
    for path in ("report", "cost", "jobs", "verify", "measure"):
        check(path, *PERIOD)
    assert printed("fixes", *PERIOD, "--json") == []  # nothing was changed on its way
    seen.add("fixes")
    check("ledger show")
    check("ledger verify")
    check("ledger rebuild")
    check("ledger migrate")
    check("ledger migrate")
    draft = check("invoice draft", "acme", "2025-11")["documents"][0]["id"]
    number = check("invoice issue", draft)["documents"][0]["number"]
    check("invoice show", number)
    check("invoice credit", number, "--reason", "outage")
    check("invoice list")
    check("invoice close-period", "2025-11")
    check("ledger archive", "--to", "archive", "--month", "2025-11", "--not-invoiced")
    check("ledger restore", "--from", "archive", "--month", "2025-11")

    gateway = start_gateway(
        engine.url, admin_token_file=token_file, **{f"models__{MODEL}__tokenizer": ensure_model(MODEL)}
    )
    body = {"model": MODEL, "messages": [{"role": "user", "content": STORY}], "max_tokens": 2}
    request_id = gateway.http.post("/v1/chat/completions", json=body).raise_for_status().headers["x-request-id"]
    of = ("--gateway", gateway.url, "--token-file", str(token_file))
    status = check("status", *of)
    assert [row["running_requests"] for row in status["endpoints"]] == [0]
    check("index show", *of)
    check("index top", *of)
    check("index clear", "--endpoint", "e0", *of)
    check("explain", request_id, *of)
    check("check", "--backend", engine.url, "--no-proof")
    Path("sweep.yaml").write_text(SWEEP.format(url=engine.url))
    check("tune", "sweep.yaml")
    with_json = {path for path, command in all_commands() if any("--json" in one.opts for one in command.params)}
    assert with_json - seen == {"demo", "epp"}


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["report", "--month", "2026-13"], "period_invalid", 2),
        (["report", "--month", "2026-11", "--ledger", "gone.db"], "ledger_missing", 2),
        (["verify", "--month", "2026-11", "--ledger", "gone.db"], "ledger_missing", 2),
        (["cost", "--month", "2026-11", "-c", "gone.yaml"], "config_invalid", 2),
        (["keys", "list"], "keys_file_missing", 2),
        (["prices", "show"], "prices_file_missing", 2),
        (["cost", "--month", "2026-11"], "costs_file_missing", 2),
        (["invoice", "list"], "invoicing_file_missing", 2),
        (["index", "show"], "admin_token_missing", 2),
        (["status", "--gateway", "http://127.0.0.1:9"], "gateway_away", 1),
        (["check"], "backends_missing", 2),
        (["check", "--nope"], "usage", 2),
        (["nope"], "usage", 2),
    ],
)
def test_a_refusal_is_json_too_where_json_was_asked_for(
    arguments: list[str], code: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert (result.exit_code, result.stdout) == (exit_code, "")
    error = json.loads(result.stderr)["error"]
    assert set(error) == {"code", "message", "help"}
    assert error["code"] == code
    assert f"`{code}`" in (DOCS / "cli.md").read_text()
    plain = CliRunner().invoke(cli, arguments)
    assert plain.stderr.startswith(f"prefixgate: {error['message']}\n")
