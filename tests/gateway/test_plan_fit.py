"""`prefixgate plan --fit`: what endpoints reach of their datasheets."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import httpx
from typer.testing import CliRunner, Result

from backends.hardware import expected_speed
from gateway.backend_sections import Backend
from gateway.cli import cli
from gateway.plan_fit import LEAST_SAMPLES, measured_shares
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import chat_stream, scripted_engine
from tests.hostile import stream

COLD = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}


def row(endpoint: str, samples: int) -> dict[str, object]:
    speed = asdict(expected_speed("h100", 2, "qwen3-32b"))
    speed |= {"quadratic_s": speed["quad_s_per_token2"], "samples": samples, "age_s": 1.0}
    return {"id": endpoint, "speed": speed}


def test_only_backends_that_name_their_gpu_are_fitted_to_and_only_if_measured_often_enough() -> None:
    big: dict[str, object] = {"gpu": "h100", "gpus": 2, "gpu_model": "qwen3-32b"}
    named: dict[str, dict[str, object]] = {"often": big, "seldom": big, "never": big, "wrong": {"gpu": "l4"}}
    named["unnamed"] = {}
    backends = [Backend.model_validate({"url": f"http://{name}", "id": name, **more}) for name, more in named.items()]
    rows: list[dict[str, object]] = [
        row("often", LEAST_SAMPLES),
        row("seldom", 3),
        {"id": "never", "speed": None},
        row("wrong", 99),
    ]
    found = {one.endpoint: one for one in measured_shares(backends, rows, (16, 16))}
    assert found.keys() == {"often", "seldom", "never", "wrong"}
    shares = found["often"].shares
    assert shares is not None
    assert round(shares.arithmetic_over_usual, 6) == 1
    assert found["seldom"].why_not == "measured 3 times, 16 are needed"
    assert found["never"].why_not == "measured 0 times, 16 are needed"
    assert "of the datasheet, which cannot be" in (found["wrong"].why_not or "")


async def test_a_running_gateway_says_how_fast_its_endpoints_were_measured(
    start_gateway: StartGateway, token_file: Path, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    """An answer within a millisecond is faster than any L4: the command says so, and plans with what is usual."""
    answer = stream(*chat_stream("Hi", usage=COLD))
    config = tmp_path / "prefixgate.yaml"
    async with scripted_engine(answer) as engine:
        backend = {"url": engine.url, "id": "e0", "gpu": "l4"}
        gateway = await start(start_gateway, admin_token_file=token_file, backends=[backend])
        config.write_text(json.dumps({"backends": [backend], "admin_token_file": str(token_file)}))
        for number in range(LEAST_SAMPLES + 4):
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"{number} " * 40}]}
            assert (await client.post(f"{gateway.url}/v1/chat/completions", json=body)).status_code == 200
        await settled(gateway, LEAST_SAMPLES + 4)
        shown = await plan("llama-3.1-8b", "--gpu", "l4", "--fit", "-c", str(config), "--gateway", gateway.url)
        told = await plan(
            *("llama-3.1-8b", "--gpu", "l4", "--fit", "-c", str(config), "--gateway", gateway.url, "--json")
        )
    assert shown.exit_code == 0, shown.output
    (fitted,) = json.loads(told.stdout)[0]["fitted_to"]
    assert (fitted["endpoint"], fitted["gpu"], fitted["gpus"]) == ("e0", "l4", 1)
    assert fitted["samples"] >= LEAST_SAMPLES
    assert "which cannot be" in fitted["why_not"]


async def plan(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, ["plan", *arguments])


async def test_without_a_named_gpu_there_is_nothing_to_fit_to(
    start_gateway: StartGateway, token_file: Path, tmp_path: Path
) -> None:
    config = tmp_path / "prefixgate.yaml"
    async with scripted_engine(stream(*chat_stream("Hi", usage=COLD))) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
        config.write_text(json.dumps({"backends": [{"url": engine.url}], "admin_token_file": str(token_file)}))
        found = await plan("llama-3.1-8b", "--fit", "-c", str(config), "--gateway", gateway.url)
    assert found.exit_code == 1
    assert "no backend of the configuration names its gpu" in found.stderr
