"""An answer that one endpoint wrote from a prompt that another had computed, gone on with by a third."""

import asyncio
import json

import httpx

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.continuing.talking import HEAD, chunked
from tests.gateway.disaggregation.engines import Hall, backend, vllm_decode, vllm_prefill
from tests.gateway.disaggregation.ledger import ask, attempts, split_row
from tests.gateway.scripted_engine import event, scripted_engine
from tests.hostile import Behaviour, Peer


def dies_once(hall: Hall, died: asyncio.Event) -> Behaviour:
    """A decode engine: the first of all that fetches a prompt dies after a word."""
    goes_on = vllm_decode(hall)

    async def keeps_alive(peer: Peer) -> None:
        if died.is_set():
            await goes_on(peer)
            return
        died.set()
        body = json.loads((await peer.read_request()).partition(b"\r\n\r\n")[2])
        hall.pinned.discard(body["kv_transfer_params"]["remote_request_id"])
        word = event({"id": "x", "created": 1, "choices": [{"index": 0, "delta": {"content": "There"}}]})
        await peer.send(HEAD + chunked(word))
        peer.reset()

    return keeps_alive


async def test_another_decode_endpoint_goes_on_alone(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    hall, died = Hall(), asyncio.Event()
    async with (
        scripted_engine(vllm_prefill(hall)) as prefill,
        scripted_engine(dies_once(hall, died)) as one,
        scripted_engine(dies_once(hall, died)) as other,
    ):
        backends = [backend(prefill, "p", "prefill"), backend(one, "d0", "decode"), backend(other, "d1", "decode")]
        gateway = await start(start_gateway, backends=backends, continuation__enabled=True)
        answer = await ask(client, gateway, stream=True, max_tokens=100)
        assert len(await settled(gateway, 1)) == 1
        tried, row = attempts(gateway), split_row(gateway)
        loads = gateway.http.get("/health").json()["endpoints"].values()
        assert sum(one["in_flight_requests"] for one in loads) == 0
    assert answer.content.count(b"prefixgate-continued") == 1
    assert answer.text.count("whale") == 1
    assert [outcome for _, outcome in tried] == ["prefilled", "upstream_failed", "answered"]
    first, second = tried[1][0], tried[2][0]
    assert {first, second} == {"d0", "d1"}
    assert len(prefill.bodies) == 1, "what goes on computes what was said by itself"
    assert hall.pinned == set()
    assert row[:2] == (second, None)
    assert row[5] == 40 + 2
