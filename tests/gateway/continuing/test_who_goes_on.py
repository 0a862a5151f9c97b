"""Who is asked to go on with an answer, and what is written of one that nobody went on with."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import StartGateway, settled
from tests.gateway.continuing.asking import CHAT, CHAT_PATH, between, column
from tests.gateway.continuing.talking import HEAD, TEXT, Dialect, Scene, chunked, heard
from tests.gateway.scripted_engine import event, scripted_engine
from tests.hostile import Behaviour, Peer
from tests.until import until

BY_TURNS: dict[str, Any] = {"scheduling__policy": "round_robin"}
SAYS = Dialect().chunk
HALF = SAYS("engine-a", {"role": "assistant", "content": ""}) + SAYS("engine-a", "The") + SAYS("engine-a", " books")
FAILED = event({"error": {"message": "the engine core died", "code": 500}}) + b"data: [DONE]\n\n"


def first_half_then(status: int, *, says_so: bool) -> Behaviour:
    """Two words of an answer, then a failure, told or not; this status for whoever is to go on."""

    async def behave(peer: Peer) -> None:
        body = json.loads((await peer.read_request()).partition(b"\r\n\r\n")[2])
        if body.get("continue_final_message"):
            await peer.send(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % status)
            return
        await peer.send(HEAD + chunked(HALF + FAILED * says_so) + b"0\r\n\r\n" * says_so)

    return behave


@pytest.mark.parametrize("says_so", [True, False], ids=["told", "broken off"])
@pytest.mark.parametrize("status", [503, 400])
async def test_an_answer_that_nobody_went_on_with_is_written_down_as_its_own_endpoints(
    status: int, says_so: bool, start_gateway: StartGateway
) -> None:
    engine = first_half_then(status, says_so=says_so)
    async with between(start_gateway, engine, engine, **BY_TURNS) as (gateway, client):
        answer = await client.post(CHAT_PATH, json=CHAT)
        [row] = await settled(gateway, 1)
        [(endpoint, number)] = column(gateway, "SELECT endpoint_id, continuations FROM settlements")
        attempts = column(gateway, "SELECT endpoint_id, status FROM attempts ORDER BY ordinal")
    assert (heard(answer.content).text, row.state, row.output_tokens) == ("The books", "partial", 40)
    first, second = attempts
    assert endpoint == first[0] == answer.headers["x-prefixgate-endpoint"] != second[0]
    assert (number, first[1], second[1]) == (None, 200, None)


async def test_an_endpoint_that_froze_is_not_asked_how_many_tokens_it_wrote(start_gateway: StartGateway) -> None:
    async with scripted_engine() as frozen, scripted_engine(Scene().engine("engine-b")) as other:

        async def freezes(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(HEAD + chunked(HALF))
            frozen.silent = True  # to whatever it is asked
            await peer.hang()

        frozen.scripts = [freezes]
        flags = {"continuation__enabled": True, "limits__idle_s": 0.3, **BY_TURNS}
        gateway = await asyncio.to_thread(start_gateway, frozen.url, other.url, **flags)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            answers = []
            while not frozen.asked.is_set():
                answers.append(heard((await client.post(CHAT_PATH, json=CHAT)).content))
        assert gateway.metric("prefixgate_continuations_total", outcome="continued") == 1
        await settled(gateway, len(answers))
        # The tokens of what was sent on are known as well: it is routed by them.
        assert gateway.metric("prefixgate_prompts_total", source="engine") == len(answers)
    assert {(said.text, len(said.errors)) for said in answers} == {(TEXT, 0)}


@pytest.mark.parametrize("owner", ["vllm", "llamacpp"])
async def test_an_endpoint_that_joined_during_the_answer_goes_on_where_its_engine_can(
    owner: str, start_gateway: StartGateway, token_file: Path, tmp_path: Path
) -> None:
    joined = asyncio.Event()
    async with scripted_engine() as old, scripted_engine(Scene().engine("engine-b"), owner=owner) as new:

        async def dies_later(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(HEAD + chunked(HALF))
            await joined.wait()

        old.scripts = [dies_later]
        flags = {"admin_token_file": token_file, "discovery__admin_file": tmp_path / "added.json"}
        gateway = await asyncio.to_thread(start_gateway, old.url, continuation__enabled=True, **flags)
        token = {"authorization": "Bearer letmein"}
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            asking = asyncio.ensure_future(client.post(CHAT_PATH, json=CHAT))
            await old.asked.wait()
            added = await client.post("/admin/endpoints", json={"url": new.url, "id": "new"}, headers=token)
            assert added.status_code == 201
            await until(
                lambda: client.get("/health"), lambda found: found.json()["endpoints"].get("new", {}).get("healthy")
            )
            joined.set()
            said = heard((await asking).content)
        await settled(gateway, 1)
    goes_on = owner == "vllm"
    assert (said.text, len(said.errors)) == ((TEXT, 0) if goes_on else ("The books", 1))
    assert len(new.bodies) == int(goes_on)
