"""Adapters through a whole gateway: named, routed by where they are loaded, told to engines, listed, and billed."""

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from backends.reference.model_files import ensure_model
from gateway.checking import ask_backends
from gateway.config import load_config
from prefix_index import EmbeddedServer
from tests.gateway.adapters.serving import LISTED, ask, listing, vllm
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.limited import Gate
from tests.gateway.scripted_engine import answer_chat, answer_json, scripted_engine
from tests.hostile import Peer
from tests.until import until

TOKEN = {"authorization": "Bearer letmein"}


async def where(gateway: RunningGateway, client: httpx.AsyncClient, model: str, *texts: str) -> list[str]:
    """The endpoints that took one chat after the other."""
    answers = [await ask(gateway, client, model, text) for text in texts]
    assert {answer.status_code for answer in answers} == {200}, answers[-1].text
    return [answer.headers["x-prefixgate-endpoint"] for answer in answers]


async def endpoints_up(gateway: RunningGateway, client: httpx.AsyncClient) -> int:
    endpoints = (await client.get(f"{gateway.url}/health")).json()["endpoints"]
    return sum(one["healthy"] for one in endpoints.values())


async def test_an_adapter_stays_where_it_is_loaded_and_its_base_is_spread(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    async with vllm() as one, vllm() as other:
        local = {"m": {"tokenizer": ensure_model("tiny")}}
        gateway = await start(start_gateway, one.url, other.url, admin_token_file=token_file, models=local)
        texts = [f"{number} is a number" for number in range(12)]
        assert len(set(await where(gateway, client, "sql", *texts))) == 1
        assert len(set(await where(gateway, client, "m", *texts))) == 2
        answer = await ask(gateway, client, "sql", "And why?")
        told = (
            await client.get(f"{gateway.url}/admin/requests/{answer.headers['x-request-id']}", headers=TOKEN)
        ).json()
        assert sorted(terms["adapter_load_s"] for terms in told["terms"].values()) == [0.0, 0.5]
        chosen = answer.headers["x-prefixgate-endpoint"]
        assert gateway.metric("prefixgate_adapter_requests_total", endpoint=chosen, residency="sent_lately") == 12
        assert gateway.metric("prefixgate_adapter_requests_total", endpoint=chosen, residency="absent") == 1


async def test_a_new_adapter_goes_where_it_pushes_nobody_out_who_is_in_use(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with vllm(slots=1) as one, vllm(slots=1) as other:
        gateway = await start(start_gateway, one.url, other.url)
        [busy] = set(await where(gateway, client, "sql", *(f"{number}!" for number in range(6))))
        [free] = set(await where(gateway, client, "law", *(f"{number}?" for number in range(3))))
        assert free != busy
        assert gateway.metric("prefixgate_adapter_evictions_total") == 0


async def test_the_engines_word_counts_for_what_other_replicas_have_sent(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with vllm() as one, vllm() as other:
        info = 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters=""} 2.0\n'
        other.metrics += info.encode()
        gateway = await start(start_gateway, one.url, other.url)
        assert await where(gateway, client, "sql", "One.", "Two.") == ["e1", "e1"]
        assert gateway.metric("prefixgate_adapter_requests_total", endpoint="e1", residency="at_work") == 2


async def test_four_gateways_spread_a_burst_of_many_adapters(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Sixteen adapters, four requests each, in the same instant, of which no gateway knows another's: each at home
    somewhere, and nowhere too many."""
    held, burst, names = Gate(usage=None), 64, [f"a{number}" for number in range(16)]
    listed = [{"id": "m", "owned_by": "vllm"}, *({"id": name, "owned_by": "vllm", "parent": "m"} for name in names)]
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(EmbeddedServer())
        engines = [await stack.enter_async_context(vllm(*listed, slots=8, script=held.script)) for _ in range(4)]
        flags = {"index__redis_url": redis.url, "models": {"m": {"tokenizer": ensure_model("tiny")}}}
        gateways = [await start(start_gateway, *(one.url for one in engines), **flags) for _ in range(4)]
        for gateway in gateways:  # on a loaded machine an engine may not have answered its first poll in time
            await until(partial(endpoints_up, gateway, client), lambda up: up == 4)
        async with asyncio.TaskGroup() as group:
            for number in range(burst):
                group.create_task(ask(gateways[number % 4], client, names[number % 16], f"{number} {number} and more"))
            await held.reached(burst)
            held.open()
    counts = [len(engine.requests) for engine in engines]
    assert sum(counts) == burst
    # A herd would be 64 at one. Where each adapter is at home at any of four by chance, more than 40 are one in 800.
    assert max(counts) <= 40, counts


async def test_what_loading_takes_is_learned_from_first_uses(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    adapters = [{"id": f"a{number}", "owned_by": "vllm", "parent": "m"} for number in range(4)]
    loaded: set[str] = set()

    async def keeps_alive(peer: Peer) -> None:
        request = json.loads((await peer.read_request()).partition(b"\r\n\r\n")[2])
        if request["model"] not in loaded:
            loaded.add(request["model"])
            await asyncio.sleep(0.3)  # the disk
        usage = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
        pieces = [{"choices": [{"index": 0, "delta": {"content": "Hi"}}]}, {"choices": [], "usage": usage}]
        body = b"".join(b"data: %b\n\n" % json.dumps(piece).encode() for piece in pieces) + b"data: [DONE]\n\n"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
        await peer.send(head + body)

    async with vllm({"id": "m", "owned_by": "vllm"}, *adapters, script=keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, adapters__load_s=5.0)
        for adapter in ("a0", "a1", "a2", "a3", "a0"):
            answer = await ask(gateway, client, adapter, "Load it.", stream=True)
            assert answer.status_code == 200
        assert 0.25 < gateway.metric("prefixgate_adapter_load_seconds", endpoint="e0") < 4.0
        samples = gateway.metric("prefixgate_perf_samples_total", kind="alone")
        assert samples <= 1, "first uses say nothing of the prefill speed"


async def test_adapters_are_listed_with_their_base(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async with vllm() as engine:
        gateway = await start(start_gateway, engine.url)
        page = (await client.get(f"{gateway.url}/v1/models")).json()
        assert {one["id"]: one["parent"] for one in page["data"]} == {"m": None, "sql": "m", "law": "m"}


async def test_sglang_is_told_of_the_adapter_that_it_would_else_leave_out(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi", usage=None), owner="sglang") as engine:
        listing(engine, *({**one, "owned_by": "sglang"} for one in LISTED))
        gateway = await start(start_gateway, engine.url, isolation="none")
        for model, fields in (("sql", {"adapter_id": "x"}), ("sql", {}), ("m:sql", {}), ("m", {"lora_path": "sql"})):
            answer = await ask(gateway, client, model, "In which table? " * 20, **fields)
            assert answer.status_code == 200, answer.text
        assert answer.headers["x-prefixgate-reason"] == "prefix_hit", "one adapter, one prefix, however it is named"
        assert [(body["model"], body["lora_path"]) for body in map(json.loads, engine.bodies)] == [("sql", "sql")] * 4


async def test_where_all_adapters_are_loaded_from_the_start_none_costs_anything(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    known = [{"name": "poet", "model": "m", "number": 1, "scale": 0.5}]
    async with scripted_engine(answer_chat("Hi", usage=None), owner="llamacpp") as engine:
        gateway = await start(
            start_gateway, engine.url, adapters__known=known, isolation="none", admin_token_file=token_file
        )
        answer = await ask(gateway, client, "poet", "Rhyme.")
        assert answer.status_code == 200, answer.text
        body = json.loads(engine.bodies[-1])  # before it, its tokens were asked for
        assert (body["model"], body["lora"]) == ("m", [{"id": 1, "scale": 0.5}])
        told = (
            await client.get(f"{gateway.url}/admin/requests/{answer.headers['x-request-id']}", headers=TOKEN)
        ).json()
        assert told["terms"]["e0"]["adapter_load_s"] == 0.0
        assert gateway.metric("prefixgate_adapter_requests_total") == 0


async def test_trtllms_adapters_are_the_operators_to_describe(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    known = [{"name": "sql", "model": "m", "path": "/adapters/sql", "number": 7}]
    async with scripted_engine(answer_chat("Hi", usage=None), owner="tensorrt_llm") as engine:
        gateway = await start(start_gateway, engine.url, adapters__known=known)
        assert (await ask(gateway, client, "sql", "Hi")).status_code == 200
        theirs = {"lora_name": "x", "lora_int_id": 1, "lora_path": "/etc"}
        refused = await ask(gateway, client, "m", "Hi", lora_request=theirs)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "lora_request")
        [body] = map(json.loads, engine.bodies)
        assert body["model"] == "m"
        assert body["lora_request"] == {"lora_name": "sql", "lora_int_id": 7, "lora_path": "/adapters/sql"}
        page = (await client.get(f"{gateway.url}/v1/models/sql")).json()
        assert (page["id"], page["parent"]) == ("sql", "m")


LOADING = ("/load_lora_adapter", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/lora-adapters")


@pytest.mark.parametrize("owner", ["vllm", "sglang", "llamacpp"])
async def test_no_path_that_loads_an_adapter_is_reached(
    start_gateway: StartGateway, client: httpx.AsyncClient, owner: str
) -> None:
    async with scripted_engine(answer_json({"loaded": True}), owner=owner) as engine:
        gateway = await start(start_gateway, engine.url, isolation="none")
        for path in LOADING:
            for url in (path, f"/v1/..{path}", f"//{path}", path.replace("_", "%5f")):
                answer = await client.post(f"{gateway.url}{url}", json={"lora_name": "x", "lora_path": "/etc"})
                assert answer.status_code in (400, 404), url
        assert not engine.requests


async def test_check_says_which_adapters_nobody_can_have_and_why() -> None:
    known = [
        {"name": "good", "model": "m", "backends": ["gpu-1"]},
        {"name": "sql", "model": "m"},
        {"name": "elsewhere", "model": "m", "backends": ["gpu-9"]},
        {"name": "of-nobody", "model": "gone", "backends": ["gpu-1"]},
        {"name": "m", "model": "m", "backends": ["gpu-1"]},
        {"name": "numbered", "model": "m", "path": "/a", "number": 1},
    ]
    async with vllm() as engine:
        backends = [{"id": "gpu-1", "url": engine.url}]
        config = load_config(None, {}, {"backends": backends, "adapters": {"known": known}})
        _, _, said = await ask_backends(config, {}, None)
    assert said == [
        "adapters.known: elsewhere: there is no backend gpu-9",
        "adapters.known: of-nobody: none of its backends serves the model gone",
        "adapters.known: m: a backend has another model of that name",
        "adapters.known: numbered: no TensorRT-LLM and no llama.cpp serves the model m",
    ]


async def test_tokens_are_counted_for_an_adapter_however_it_is_named(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with vllm() as engine:
        gateway = await start(start_gateway, engine.url, models={"m": {"tokenizer": ensure_model("tiny")}})
        answers = [
            await client.post(
                f"{gateway.url}/v1/messages/count_tokens",
                json={"model": model, "messages": [{"role": "user", "content": "In which table?"}]},
            )
            for model in ("m", "sql", "m:sql", "m:unknown")
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404]
    assert len({answer.text for answer in answers[:3]}) == 1
