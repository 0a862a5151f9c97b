"""What `prefixgate check` says that an engine lacks, and the flag that would turn it on: from the pages of engines."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from backends.dialects import DIALECTS
from backends.features import Feature
from gateway.checking import Finding, ask_backends
from gateway.cli import cli
from gateway.config import load_config
from gateway.engine_advice import WITHOUT
from tests.backends.dialects.engine_pages import SERVERS, page_server, pages_of


async def found(
    server: str, pages: Mapping[str, tuple[int, bytes]] = {}, config: Mapping[str, object] = {}, **flags: object
) -> Finding:
    """What the command finds at a server of these pages."""
    async with page_server({**pages_of(server), **pages}) as (_, at):
        backend = {"url": at.url, "id": "a", **flags}
        [finding], _, _ = await ask_backends(load_config(None, {}, {"backends": [backend], **config}), {}, None)
    return finding


def lacking(finding: Finding) -> dict[str, tuple[str, str]]:
    return {one.feature: (one.standing, one.flag) for one in finding.features}


async def test_every_feature_that_is_off_is_named_with_the_flag_that_turns_it_on() -> None:
    finding = await found("sglang-0.5.23-no-metrics")
    off = {name: flag for name, (standing, flag) in lacking(finding).items() if standing == "off"}
    assert off == {
        "cached tokens in usage": "--enable-cache-report",
        "metrics": "--enable-metrics",
        "KV events": """--kv-events-config '{"publisher":"zmq","endpoint":"tcp://*:5557"}'""",
        "prefix caching": "no --disable-radix-cache",
    }
    for said in ("--enable-cache-report", "metrics: off, turned on by --enable-metrics", "no --disable-radix-cache"):
        assert said in finding.advice


async def test_what_no_page_says_is_said_to_be_unknown_and_not_off() -> None:
    features = lacking(await found("vllm-0.8.5"))
    assert features["scheduling by priority"] == ("cannot be told", "--scheduling-policy priority")
    assert features["cached tokens in usage"] == ("cannot be told", "--enable-prompt-tokens-details")
    assert features["KV events"][0] == "cannot be told"
    assert "prefix caching" not in features
    assert "LoRA adapters" not in features


@pytest.mark.parametrize("events", [{"mode": "off"}, {"url": "tcp://127.0.0.1:5557"}, {"mode": "poll"}])
async def test_events_that_the_configuration_has_settled_are_no_matter_of_the_engine(events: dict[str, str]) -> None:
    assert "KV events" in lacking(await found("trtllm-1.4"))
    assert "KV events" not in lacking(await found("trtllm-1.4", kv_events=events))


async def test_what_an_engine_has_not_is_no_flag_to_be_found() -> None:
    features = lacking(await found("ollama-0.14"))
    assert features["cached tokens in usage"] == ("the engine has none", "")
    assert features["metrics"] == ("the engine has none", "")


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("vllm-0.8.5", "pass_priority is set: --scheduling-policy priority must be set at the engine (cannot be told)"),
        ("sglang-0.5.23", "pass_priority is set: --enable-priority-scheduling must be set at the engine (off)"),
        ("tgi-3.3.7", "pass_priority is set: this engine knows no priorities"),
    ],
)
async def test_an_engine_that_is_told_of_priorities_must_heed_them(server: str, said: str) -> None:
    assert said in (await found(server, pass_priority=True)).advice
    assert "pass_priority" not in (await found(server)).advice


async def test_an_engine_that_says_that_it_heeds_priorities_needs_no_advice() -> None:
    assert "pass_priority" not in (await found("sglang-0.5.23-no-metrics", pass_priority=True)).advice


async def test_the_command_prints_what_is_lost_and_the_flag(tmp_path: Path) -> None:
    async with page_server(pages_of("sglang-0.5.23-no-metrics")) as (_, at):
        config = tmp_path / "c.yaml"
        config.write_text(yaml.safe_dump({"backends": [{"url": at.url}], "ledger": {"path": str(tmp_path / "l.db")}}))
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["check", "-c", str(config), "--no-proof"])
    assert result.exit_code == 0, result.output
    assert "--enable-metrics" in result.output
    assert "nothing is reused" in result.output


async def test_an_engine_that_tells_no_token_ids_of_chats_needs_a_tokenizer_here() -> None:
    said = "it tells no token ids of chats: set models.<name>.tokenizer"
    assert said in (await found("ollama-0.14")).advice
    assert said in (await found("sglang-0.4.6")).advice
    assert said not in (await found("llamacpp")).advice


@pytest.mark.parametrize("server", SERVERS)
async def test_what_is_on_is_not_listed_and_the_rest_is_once(server: str) -> None:
    finding = await found(server)
    assert len({one.feature for one in finding.features}) == len(finding.features)
    assert all(one.standing != "on" for one in finding.features)


async def test_adapters_that_only_have_a_number_need_a_name_here() -> None:
    pages = {"/lora-adapters": (200, b'[{"id":0,"path":"/a/sql.gguf","scale":1.0},{"id":1,"path":"x","scale":0.0}]')}
    known = [
        {"name": "sql", "model": "smollm2", "number": 0},
        {"name": "of another engine", "model": "other", "number": 1},
    ]
    said = "no request can ask for its adapters 0 (sql.gguf), 1 (x): name them in adapters.known"
    assert said in (await found("llamacpp", pages)).advice
    assert "adapters 1 (x): name" in (await found("llamacpp", pages, {"adapters": {"known": known}})).advice
    assert "--lora-init-without-apply" in (await found("llamacpp", pages)).advice
    for said in ("adapters.known", "--lora-init-without-apply"):
        assert said not in (await found("llamacpp")).advice


def test_every_feature_says_what_is_lost_without_it() -> None:
    assert set(WITHOUT) == set(Feature)


def test_flags_are_of_features_that_the_gateway_asks_about() -> None:
    for dialect in DIALECTS:
        assert set(dialect.flags) <= set(Feature)
