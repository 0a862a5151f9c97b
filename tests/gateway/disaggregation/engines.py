"""Prefill and decode engines on real ports that refuse a wrong sequence, as vLLM, SGLang and TensorRT-LLM would break.

    async with pair() as (prefill, decode): ...     prefill.bodies, decode.bodies, hall.pinned

What was handed over lies in a `Hall` until it is fetched, once; what is asked for twice, or was never there, is an
error of the engine. Every scripted prompt has 40 tokens.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.gateway.scripted_engine import ScriptedEngine, chat_stream, scripted_engine
from tests.hostile import Behaviour, Peer

PROMPT = 40
PATIENCE_S = 1.0
"""How long one of SGLang waits in a room."""
SLOW = 10.0
"""Tokens a second at which a decode endpoint is believed to prefill: splitting pays."""


@dataclass
class Hall:
    """What lies at prefill engines for decode engines, and what the engines are to do next."""

    pinned: set[str] = field(default_factory=set)
    fetched: list[str] = field(default_factory=list)
    rooms: dict[int, list[str]] = field(default_factory=dict)
    met: asyncio.Condition = field(default_factory=asyncio.Condition)
    prefill_cached: int | None = 16
    decode_cached: int | None = 16
    hands_over: bool = True
    names: "count[int]" = field(default_factory=count)


def usage(cached: int | None, output: int) -> dict[str, Any]:
    """As the engines tell it."""
    details = None if cached is None else {"cached_tokens": cached}
    return {"prompt_tokens": PROMPT, "completion_tokens": output, "prompt_tokens_details": details}


def refused(message: str) -> tuple[int, dict[str, Any]]:
    """A request that breaks the protocol."""
    return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def answering(respond: Any) -> Behaviour:
    """A script of one request: `respond` gives status and JSON, or a list of events."""

    async def keeps_alive(peer: Peer) -> None:
        request = await peer.read_request()
        answer = await respond(json.loads(request.partition(b"\r\n\r\n")[2]))
        if isinstance(answer, list):
            body = b"".join(answer)
            kind = b"text/event-stream"
            status = 200
        else:
            status, content = answer
            body, kind = json.dumps(content).encode(), b"application/json"
        await peer.send(
            b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(body)) + body
        )

    return keeps_alive


def _answer(body: dict[str, Any], cached: int | None) -> Any:
    if body.get("stream"):
        return chat_stream("A ", "whale", usage=usage(cached, 2))
    choice = {"index": 0, "message": {"content": "A whale"}, "finish_reason": "stop"}
    return 200, {"choices": [choice], "usage": usage(cached, 2)}


def vllm_prefill(hall: Hall) -> Behaviour:
    """One of vLLM that prefills: it takes one token, no stream, and params that ask it to keep its blocks."""

    async def respond(body: dict[str, Any]) -> Any:
        params = body.get("kv_transfer_params")
        if params is None or not params["do_remote_decode"] or params["do_remote_prefill"]:
            return refused("a prefill engine answers nobody")
        if body.get("stream") or "stream_options" in body or "min_tokens" in body:
            return refused("a prefill leg is no stream")
        if (body["max_tokens"], body["max_completion_tokens"]) != (1, 1):
            return refused("a prefill leg is of one token")
        choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "length"}
        answer: dict[str, Any] = {"choices": [choice], "usage": usage(hall.prefill_cached, 1)}
        answer["kv_transfer_params"] = None
        if hall.hands_over:
            name = f"kept-{next(hall.names)}"
            hall.pinned.add(name)
            answer["kv_transfer_params"] = {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_request_id": name,
                "remote_block_ids": [[1, 2, 3]],
                "remote_prefill_cached_tokens": hall.prefill_cached,
            }
        return 200, answer

    return answering(respond)


def vllm_decode(hall: Hall) -> Behaviour:
    """One of vLLM that answers: alone, or with blocks that are still there."""

    async def respond(body: dict[str, Any]) -> Any:
        params = body.get("kv_transfer_params")
        if params is None:
            return _answer(body, 0)
        if not params["do_remote_prefill"] or params["remote_request_id"] not in hall.pinned:
            return 500, {"error": {"message": "these blocks are not there"}}
        hall.pinned.discard(params["remote_request_id"])
        hall.fetched.append(params["remote_request_id"])
        return _answer(body, hall.decode_cached)

    return answering(respond)


def sglang(hall: Hall, side: str) -> Behaviour:
    """One of SGLang, on either side: it waits in the room for the other one, and takes nothing without a room."""

    async def respond(body: dict[str, Any]) -> Any:
        if "bootstrap_room" not in body:
            return refused("Disaggregated request received without bootstrap room id")
        room = body["bootstrap_room"]
        inside = hall.rooms.setdefault(room, [])
        inside.append(side)
        try:
            async with asyncio.timeout(PATIENCE_S), hall.met:
                hall.met.notify_all()
                await hall.met.wait_for(lambda: len(inside) >= 2)
        except TimeoutError:
            return 500, {"error": {"message": "nobody came"}}
        if sorted(inside) != ["decode", "prefill"]:
            return refused("two of a kind met")
        if side == "prefill":
            if body.get("stream"):
                return refused("a prefill leg is no stream")
            return 200, {"choices": [{"index": 0, "message": {"content": ""}}], "usage": usage(hall.prefill_cached, 1)}
        return _answer(body, hall.decode_cached)

    return answering(respond)


def trtllm_context(hall: Hall) -> Behaviour:
    """A context server of TensorRT-LLM."""

    async def respond(body: dict[str, Any]) -> Any:
        asked = body.get("disaggregated_params")
        if asked is None or asked["request_type"] != "context_only" or body.get("stream"):
            return refused("a context server answers nobody")
        name = f"kept-{next(hall.names)}"
        hall.pinned.add(name)
        given = {**asked, "encoded_opaque_state": name, "first_gen_tokens": [7]}
        choice = {"index": 0, "message": {"content": "A"}, "finish_reason": "length", "disaggregated_params": given}
        return 200, {
            "choices": [choice],
            "prompt_token_ids": list(range(PROMPT)),
            "usage": usage(hall.prefill_cached, 1),
        }

    return answering(respond)


def trtllm_generation(hall: Hall) -> Behaviour:
    """A generation server of TensorRT-LLM."""

    async def respond(body: dict[str, Any]) -> Any:
        given = body.get("disaggregated_params")
        if given is None:
            return _answer(body, 0)
        if given["request_type"] != "generation_only" or given["encoded_opaque_state"] not in hall.pinned:
            return 500, {"error": "no such context"}
        if body.get("prompt_token_ids") != list(range(PROMPT)) or given["ctx_usage"]["prompt_tokens"] != PROMPT:
            return refused("the prompt's ids are those of the context call")
        hall.pinned.discard(given["encoded_opaque_state"])
        return _answer(body, hall.decode_cached)

    return answering(respond)


def backend(engine: ScriptedEngine | str, name: str, role: str, **more: Any) -> dict[str, Any]:
    """An entry of `backends`; who decodes is believed to prefill slowly."""
    url = engine if isinstance(engine, str) else engine.url
    speed = 1e6 if role == "prefill" else SLOW
    return {"url": url, "id": name, "role": role, "prefill_tokens_per_s": speed, **more}


@asynccontextmanager
async def pair(
    hall: Hall, prefill: Behaviour | None = None, decode: Behaviour | None = None, **more: Any
) -> AsyncIterator[tuple[ScriptedEngine, ScriptedEngine]]:
    """A prefill and a decode engine of vLLM, or with the scripts given."""
    async with (
        scripted_engine(prefill or vllm_prefill(hall), **more) as first,
        scripted_engine(decode or vllm_decode(hall), **more) as second,
    ):
        yield first, second
