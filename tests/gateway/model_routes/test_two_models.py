"""Two models behind one gateway: each counted, trusted and measured for itself, also where they share a name."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from tests.backends.reference.micro_model import micro_weights
from tests.gateway.conftest import MODEL, StartGateway, settled, start
from tests.gateway.model_routes.test_routes import ask, rows
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.test_regressions_tokens import RULES, other_tokenizer
from tests.until import until

SPLIT = {"name": "fast", "arms": [{"model": MODEL, "name": "one"}, {"model": "n", "name": "other"}]}
TINY = {"tokenizer": ensure_model("tiny")}


def said(conversation: int, *turns: str) -> list[dict[str, str]]:
    """Conversations that differ at once, and then are long enough for some blocks."""
    first = [{"role": "user", "content": f"Conversation {conversation}. {RULES}"}]
    return first + [{"role": role, "content": text} for role, text in zip(("assistant", "user"), turns, strict=False)]


async def test_a_name_that_means_two_models_is_counted_by_the_tokenizer_of_the_one_that_serves(
    start_gateway: StartGateway, engine: RunningEngine, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    directory = other_tokenizer(tmp_path / "other")
    config = EngineConfig(model=str(directory), served_model_name="n", kv_blocks=400, threads=1)
    with run_engine(config, micro_weights()) as second:
        tokenizers: dict[str, Any] = {MODEL: TINY, "n": {"tokenizer": directory}}
        gateway = await start(start_gateway, engine.url, second.url, models=tokenizers, model_routes=[SPLIT])
        first = [await ask(client, gateway, "fast", messages=said(at), max_tokens=1) for at in range(6)]
        again = [
            await ask(client, gateway, "fast", messages=said(at, "Yes.", "More."), max_tokens=1) for at in range(6)
        ]
        found = await settled(gateway, 12)
    places = [[answer.headers["x-prefixgate-model"] for answer in answers] for answers in (first, again)]
    assert places[0] == places[1], "a conversation stays with its model, and finds its prefix there"
    assert set(places[0]) == {MODEL, "n"}
    assert {answer.headers["x-prefixgate-tokens"] for answer in (*first, *again)} == {"local"}
    assert {answer.headers["x-prefixgate-reason"] for answer in again} == {"prefix_hit"}
    assert all((row.cached_tokens or 0) == row.expected_cached_tokens for row in found)
    assert gateway.metric("prefixgate_token_comparisons_total", outcome="equal") == 12
    assert gateway.metric("prefixgate_token_comparisons_total", outcome="different") == 0
    assert {row["model_asked"] for row in rows(gateway)} == {"fast"}


async def test_a_model_whose_tokens_are_not_believed_any_more_takes_no_other_with_it(
    start_gateway: StartGateway, engine: RunningEngine, client: httpx.AsyncClient
) -> None:
    """The second engine says forty tokens of every prompt, which its tokenizer does not."""
    async with scripted_engine(answer_chat("Hi"), model="n") as wrong:
        gateway = await start(
            start_gateway,
            engine.url,
            wrong.url,
            models={MODEL: TINY, "n": TINY},
            model_routes=[{"name": "alias-of-n", "model": "n"}],
        )
        for model in ("alias-of-n", MODEL, "n", "no-such-model"):
            for _ in range(5):
                await ask(client, gateway, model, max_tokens=1)
        right, doubted = await ask(client, gateway, MODEL, max_tokens=1), await ask(client, gateway, "n", max_tokens=1)
        degraded = (await client.get(f"{gateway.url}/health")).json()["degraded"]
        exposed = await asyncio.to_thread(lambda: gateway.http.get("/metrics").text)
    assert degraded["parity"].endswith("engine: n: chat")
    assert (right.headers["x-prefixgate-tokens"], doubted.headers["x-prefixgate-tokens"]) == ("local", "engine")
    ratios = dict(re.findall(r'prefixgate_token_parity_ratio\{model="([^"]+)",shape="chat"\} (\S+)', exposed))
    assert ratios == {MODEL: "1.0", "n": "0.0"}
    labels = set(re.findall(r'model="([^"]+)"', exposed)) | set(re.findall(r'route="([^"/]+)"', exposed))
    assert labels == {MODEL, "n", "alias-of-n"}, "names that clients make up are in no label"


async def test_of_two_models_the_one_that_is_down_is_named_and_the_other_serves(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi"), model="stays") as stays:
        async with scripted_engine(answer_chat("Hi"), model="goes") as goes:
            gateway = await start(start_gateway, goes.url, stays.url)
        await until(lambda: not gateway.metric("prefixgate_endpoint_healthy", endpoint="e0"))
        answers = [await ask(client, gateway, model) for model in ("stays", "goes", "never-was")]
        degraded = (await client.get(f"{gateway.url}/health")).json()["degraded"]
        models = (await client.get(f"{gateway.url}/v1/models")).json()["data"]
        ready = await client.get(f"{gateway.url}/ready")
    codes = [answer.json().get("error", {}).get("code") for answer in answers]
    assert codes == [None, "service_unavailable", "model_not_found"]
    assert degraded["endpoints"] == "down: e0"
    assert [model["id"] for model in models] == ["stays"]
    assert ready.status_code == 200
