"""What users of prefix routers have seen go wrong with keys: prompts that should share and did not, and the reverse.

Each test is one such story on real ports. Whether a prompt is expected anywhere stands in the headers of its answer.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.edge.auth import new_key
from tests.backends.reference.micro_model import micro_weights
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.corpora import Body, as_messages, as_responses
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat
from tests.hostile import HostileServer

RULES = " ".join(f"Rule {n}: name shelf {7 * n} and never guess." for n in range(1, 13))
CHAT: Body = {
    "model": "m",
    "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": "Where is gravity? 🦜"}],
    "max_tokens": 1,
}
LOOK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "description": "Look at a shelf.", "parameters": {"type": "object", "properties": {}}},
}
EXPECTED = "x-prefixgate-cached-tokens"
LOCAL = {"m": {"tokenizer": ensure_model("tiny")}}


@dataclass
class Listing(ScriptedEngine):
    """A scripted engine whose list of models is given; a `bare` one has no other page."""

    listed: list[dict[str, str]] = field(default_factory=list)
    bare: bool = False

    def _page(self, path: str) -> bytes:
        if path != "/v1/models" or not self.listed:
            return super()._page("/nothing" if self.bare else path)
        body = json.dumps({"object": "list", "data": self.listed}).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@asynccontextmanager
async def silent_engine(*listed: dict[str, str], bare: bool = False) -> AsyncIterator[Listing]:
    """An engine whose answers say nothing of tokens, so that only the routing is looked at."""
    engine = Listing("m", [answer_chat("Hi", usage=None)], listed=list(listed), bare=bare)
    async with HostileServer([engine.serve]) as server:
        engine.url = server.url
        yield engine


@asynccontextmanager
async def gateway_to(start: StartGateway, *urls: str, **flags: object) -> AsyncIterator[httpx.AsyncClient]:
    gateway = await asyncio.to_thread(start, *urls, **{"models": LOCAL, **flags})
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        yield client


async def reason(client: httpx.AsyncClient, body: Body, path: str = "/v1/chat/completions", **headers: str) -> str:
    """What the decision for a request went by."""
    answer = await client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-prefixgate-reason"]


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with run_engine(EngineConfig(model="tiny", served_model_name="m", kv_blocks=128, threads=1), micro_weights()) as e:
        yield e


@pytest.fixture(autouse=True)
def _cold(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        httpx.post(f"{request.getfixturevalue('engine').url}/reset_prefix_cache").raise_for_status()


async def test_salt_isolation_a_tenant_is_not_sent_where_anothers_prompt_is(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    made = {name: new_key() for name in ("acme", "globex")}
    keys = tmp_path / "keys.yaml"
    lines = [f"  - {{id: {name}, keys: [{{id: {name}-1, sha256: {digest}}}]}}" for name, (_, digest) in made.items()]
    keys.write_text("\n".join(["tenants:", *lines]))
    async with silent_engine() as engine, gateway_to(start_gateway, engine.url, keys_file=keys) as client:
        acme, globex = ({"authorization": f"Bearer {key}"} for key, _ in made.values())
        assert await reason(client, CHAT, **acme) == "no_prefix"
        assert await reason(client, CHAT, **globex) == "no_prefix"
        assert await reason(client, CHAT | {"cache_salt": "acme"}, **acme) == "prefix_hit"
    salts = [json.loads(body)["cache_salt"] for body in engine.bodies]
    assert salts[0] == salts[2] != salts[1]


async def test_lora_isolation_an_adapter_never_shares_with_its_base(start_gateway: StartGateway) -> None:
    base = {"id": "m", "owned_by": "vllm"}
    adapters = [{"id": name, "owned_by": "vllm", "parent": "m"} for name in ("m-law", "m-art")]
    async with silent_engine(base, *adapters) as engine, gateway_to(start_gateway, engine.url) as client:
        for model in ("m", "m-law", "m-art"):
            assert await reason(client, CHAT | {"model": model}) == "no_prefix"
        for model in ("m", "m-law", "m-art"):
            assert await reason(client, CHAT | {"model": model}) == "prefix_hit"


async def test_tools_in_key_the_same_words_with_other_tools_are_another_prompt(start_gateway: StartGateway) -> None:
    other = {"type": "function", "function": {**LOOK["function"], "description": "Look at a book."}}
    async with silent_engine() as engine, gateway_to(start_gateway, engine.url) as client:
        headless = {**CHAT, "messages": CHAT["messages"][1:]}
        long = {**headless, "messages": [{"role": "user", "content": RULES}]}
        assert await reason(client, long) == "no_prefix"
        assert await reason(client, long | {"tools": [LOOK]}) == "no_prefix"
        assert await reason(client, long | {"tools": [LOOK]}) == "prefix_hit"
        first = int((await client.post("/v1/chat/completions", json=long | {"tools": [LOOK]})).headers[EXPECTED])
        changed = int((await client.post("/v1/chat/completions", json=long | {"tools": [other]})).headers[EXPECTED])
    assert changed < first - 48  # what stands behind the description is no longer shared


async def test_template_parity_what_is_predicted_is_what_the_engine_reused(
    start_gateway: StartGateway, engine: RunningEngine
) -> None:
    turns = [*CHAT["messages"], {"role": "assistant", "content": "On 7."}, {"role": "user", "content": "And botany?"}]
    gateway = await asyncio.to_thread(start_gateway, engine.url, models=LOCAL)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for messages in (CHAT["messages"], turns):
            await reason(client, {**CHAT, "messages": messages, "tools": [LOOK]})
    first, second = await settled(gateway, 2)
    assert (first.cached_tokens, first.expected_cached_tokens) == (0, 0)
    assert second.cached_tokens == second.expected_cached_tokens
    assert second.cached_tokens is not None
    assert second.cached_tokens > 200
    assert gateway.metric("prefixgate_token_count_mismatch_total") == 0


async def test_template_parity_a_wrong_template_is_noticed_and_no_longer_believed(
    start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path
) -> None:
    template = tmp_path / "other.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    models = {"m": {"tokenizer": ensure_model("tiny"), "chat_template": template}}
    gateway = await asyncio.to_thread(start_gateway, engine.url, models=models)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for number in range(10):
            await reason(client, {**CHAT, "messages": [*CHAT["messages"], {"role": "user", "content": str(number)}]})
        health = (await client.get("/health")).json()
    rows = await settled(gateway, 10)
    assert gateway.metric("prefixgate_token_count_mismatch_total") == 8
    assert "m: chat" in health["degraded"]["parity"]
    assert rows[-1].cached_tokens == rows[-1].expected_cached_tokens


async def test_messages_responses_parity_one_conversation_is_one_chain_in_every_dialect(
    start_gateway: StartGateway, engine: RunningEngine
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat = {
        **CHAT,
        "messages": [
            *CHAT["messages"],
            {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "Gravity is on 7."},
        ],
        "tools": [LOOK],
    }
    forms = (("/v1/chat/completions", chat), ("/v1/messages", as_messages(chat)), ("/v1/responses", as_responses(chat)))
    gateway = await asyncio.to_thread(start_gateway, engine.url, models=LOCAL)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        reasons = [await reason(client, body, path) for path, body in forms]
    rows = await settled(gateway, 3)
    assert reasons == ["no_prefix", "prefix_hit", "prefix_hit"]
    assert len({row.prompt_tokens for row in rows}) == 1
    whole_blocks = ((rows[0].prompt_tokens or 0) - 1) // 16 * 16
    assert [row.cached_tokens for row in rows] == [0, whole_blocks, whole_blocks]
    assert [row.expected_cached_tokens for row in rows] == [0, whole_blocks, whole_blocks]


def picture(pixels: str) -> Body:
    parts: list[Body] = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixels}"}}]
    return {**CHAT, "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": RULES}]}]}


async def test_multimodal_digest_two_pictures_with_the_same_words_are_two_prompts(start_gateway: StartGateway) -> None:
    async with silent_engine() as engine, gateway_to(start_gateway, engine.url) as client:
        assert await reason(client, picture("QUJD")) == "no_prefix"
        assert await reason(client, picture("QUJE")) == "no_prefix"
        assert await reason(client, picture("QUJD")) == "prefix_hit"


async def test_token_id_prompt_key_a_prompt_of_ids_is_the_prompt_of_its_text(
    start_gateway: StartGateway, engine: RunningEngine
) -> None:
    text = f"{RULES} 日本語 🦜"
    gateway = await asyncio.to_thread(start_gateway, engine.url, models=LOCAL)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        ids = httpx.post(f"{engine.url}/tokenize", json={"prompt": text}).json()["tokens"]
        reasons = [
            await reason(client, {"model": "m", "prompt": prompt, "max_tokens": 1}, "/v1/completions")
            for prompt in (text, ids, [ids], [text])
        ]
    rows = await settled(gateway, 4)
    assert reasons == ["no_prefix", "prefix_hit", "prefix_hit", "prefix_hit"]
    assert {row.prompt_tokens for row in rows} == {len(ids)}
    assert [row.cached_tokens for row in rows] == [row.expected_cached_tokens for row in rows]


async def test_user_field_in_text_not_key_who_asks_changes_nothing_what_is_said_does(
    start_gateway: StartGateway,
) -> None:
    async with silent_engine() as engine, gateway_to(start_gateway, engine.url) as client:
        assert await reason(client, CHAT) == "no_prefix"
        for extra in ({"user": "u1"}, {"metadata": {"run": "7"}}, {"prompt_cache_key": "k"}, {"temperature": 0.5}):
            assert await reason(client, CHAT | extra) == "prefix_hit"
        spoken = [{"role": "system", "content": f"The user is u1. {RULES}"}]
        assert await reason(client, CHAT | {"messages": spoken}) == "no_prefix"


def other_tokenizer(directory: Path) -> Path:
    """A model directory like the tiny model's, with a tokenizer of its own of some hundred tokens."""
    shutil.copytree(
        ensure_model("tiny"), directory, copy_function=lambda source, target: Path(target).symlink_to(source)
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(
        [RULES],
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special, show_progress=False),
    )
    (directory / "tokenizer.json").unlink()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


async def test_two_models_two_tokenizers_each_prompt_is_counted_by_its_own(
    start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path
) -> None:
    directory = other_tokenizer(tmp_path / "other")
    config = EngineConfig(model=str(directory), served_model_name="n", kv_blocks=128, threads=1)
    with run_engine(config, micro_weights()) as second:
        tokenizers: dict[str, Any] = LOCAL | {"n": {"tokenizer": directory}}
        gateway = await asyncio.to_thread(start_gateway, engine.url, second.url, models=tokenizers)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            for model in ("m", "n", "m", "n"):
                await reason(client, CHAT | {"model": model})
        rows = await settled(gateway, 4)
    counts = [row.prompt_tokens for row in rows]
    assert counts[0] == counts[2] != counts[1] == counts[3]
    assert [row.cached_tokens for row in rows] == [row.expected_cached_tokens for row in rows]
    assert rows[2].cached_tokens
    assert rows[3].cached_tokens
    assert gateway.metric("prefixgate_token_count_mismatch_total") == 0


async def test_tokenizer_missing_is_loud_prefixes_by_bytes_are_said_to_be(start_gateway: StartGateway) -> None:
    listed = {"id": "m", "owned_by": "someone"}
    async with silent_engine(listed, bare=True) as engine:
        gateway: RunningGateway = await asyncio.to_thread(start_gateway, engine.url, isolation="none")
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            await reason(client, CHAT)
            health = (await client.get("/health")).json()
        rows = await settled(gateway, 1)
        assert "m" in health["degraded"]["tokenizer"]
        assert health["status"] == "degraded"
        assert gateway.metric("prefixgate_degraded", part="tokenizer") == 1
    assert rows[0].expected_cached_tokens is None


def test_tokenizer_missing_is_loud_a_path_without_one_stops_the_start(engine: RunningEngine, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"backends: [{{url: '{engine.url}'}}]\nmodels: {{m: {{tokenizer: {tmp_path / 'nothing'}}}}}\n")
    arguments = ["-m", "gateway", "serve", "-c", str(config), "--port", "0"]
    ended = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert "no tokenizer at" in ended.stderr
    assert "nothing" in ended.stderr
