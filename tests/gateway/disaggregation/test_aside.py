"""Who is left out of splits for a while: named, and only as long as it is to blame."""

from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gateway.disaggregation.aside import NOBODY, Aside, SetAside
from gateway.split_metrics import SplitMetrics
from tests.gateway.conftest import StartGateway, start
from tests.gateway.disaggregation.engines import Hall, answering, backend, pair, sglang, vllm_decode
from tests.gateway.disaggregation.ledger import ask, started
from tests.gateway.scripted_engine import scripted_engine
from tests.hostile import Behaviour, Peer

LETMEIN = {"authorization": "Bearer letmein"}


def connector_is_broken() -> Behaviour:
    """An engine that answers alone, and nothing that it was handed."""

    async def respond(body: dict[str, Any]) -> Any:
        if "kv_transfer_params" in body:
            return 500, {"error": {"message": "transfer failed"}}
        return 200, {"choices": [{"index": 0, "message": {"content": "alone"}}], "usage": {"prompt_tokens": 40}}

    return answering(respond)


async def test_a_decode_endpoint_whose_connector_is_broken_costs_two_prefills_and_is_named(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Any
) -> None:
    hall = Hall()
    async with pair(hall, decode=connector_is_broken()) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode, admin_token_file=token_file)
        for _ in range(5):
            assert (await ask(client, gateway)).status_code == 200
        assert gateway.metric("prefixgate_decode_set_aside", endpoint="d") == 1
        assert gateway.metric("prefixgate_prefill_legs_total", endpoint="p", outcome="in_vain") == 2
        shown = gateway.http.get("/admin/disaggregation", headers=LETMEIN).json()
    assert len(prefill.requests) == 2
    assert (shown["set_aside"], shown["pairs_set_aside"]) == ([], [{"prefill": "p", "decode": "d"}])


async def test_the_others_are_handed_prompts_as_before(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    hall = Hall()
    async with (
        pair(hall, decode=connector_is_broken()) as (prefill, broken),
        scripted_engine(vllm_decode(hall)) as decode,
    ):
        gateway = await start(
            start_gateway,
            backends=[
                backend(prefill, "p", "prefill"),
                backend(broken, "broken", "decode"),
                backend(decode, "d", "decode"),
            ],
        )
        while not gateway.metric("prefixgate_decode_set_aside", endpoint="broken"):
            assert (await ask(client, gateway)).status_code == 200
        before = len(broken.requests)
        for _ in range(6):
            answer = await ask(client, gateway)
            assert (answer.headers["x-prefixgate-endpoint"], answer.headers["x-prefixgate-prefill-endpoint"]) == (
                "d",
                "p",
            )
        assert gateway.metric("prefixgate_prefill_set_aside", endpoint="p") == 0
    assert len(broken.requests) == before


@pytest.mark.parametrize("others", [0, 1])
async def test_an_engine_that_cannot_answer_alone_is_asked_all_the_same_when_nobody_else_is_left(
    others: int, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    hall, is_broken = Hall(), [True]

    async def no_transfer(_: dict[str, Any]) -> Any:
        return 500, {"error": {"message": "KVTransferError"}}

    async def decode(peer: Any) -> None:
        await (answering(no_transfer) if is_broken[0] else sglang(hall, "decode"))(peer)

    async with (
        pair(hall, sglang(hall, "prefill"), decode, owner="sglang") as (prefill, bad),
        scripted_engine(sglang(hall, "decode"), owner="sglang") as good,
    ):
        backends = [
            backend(prefill, "p", "prefill"),
            backend(bad, "bad", "decode"),
            backend(good, "good", "decode"),
        ]
        gateway = await start(start_gateway, backends=backends[: 2 + others])
        answers = [(await ask(client, gateway)).status_code for _ in range(6 if others else 2)]
        assert set(answers) == ({200} if others else {500})
        if not others:  # and so nobody did better
            assert gateway.metric("prefixgate_decode_set_aside", endpoint="bad") == 0
            is_broken[0] = False
            assert (await ask(client, gateway)).status_code == 200
        elif len(bad.requests) > 1:
            assert gateway.metric("prefixgate_decode_set_aside", endpoint="bad") == 1


def aside(for_s: float = 60.0) -> tuple[SetAside, list[float]]:
    now = [0.0]
    return SetAside(SplitMetrics(CollectorRegistry()), lambda: now[0], for_s), now


def test_failures_that_were_under_way_together_are_one_and_a_success_between_clears() -> None:
    book, now = aside()
    now[0] = 5.0
    for _ in range(10):
        book.failed(("p", "d"), 1.0)
    assert book.now() == NOBODY
    book.went_well(("p", "d"))
    now[0] = 7.0
    book.failed(("p", "d"), 6.0)
    assert book.now() == NOBODY
    now[0] = 9.0
    book.failed(("p", "d"), 8.0)
    assert book.now() == Aside(pairs=frozenset({("p", "d")}))


def test_an_endpoint_is_left_by_itself_only_when_it_fails_with_others_too_and_goes_well_with_nobody() -> None:
    book, now = aside()

    def fails(prefill: str, decode: str) -> None:
        for _ in range(2):
            now[0] += 2
            book.failed((prefill, decode), now[0] - 1)

    fails("p0", "d")
    assert book.now().endpoints == frozenset()
    fails("p1", "d")
    assert book.now().endpoints == {"d"}
    book.went_well(("p2", "e"))
    fails("p2", "f")
    fails("p2", "g")
    assert book.now().endpoints == {"d"}, "p2 hands over to e"


@pytest.mark.parametrize("way", ["waits", "restarts"])
def test_what_is_set_aside_is_asked_again_and_one_more_failure_is_enough(way: str) -> None:
    book, now = aside(10.0)
    for sent_s in (1.0, 3.0):
        now[0] = sent_s + 1
        book.failed(("p", "d"), sent_s)
    assert book.now().pairs
    now[0] = 20.0
    if way == "restarts":
        book.forget("d")
    assert book.now() == NOBODY
    now[0] = 22.0
    book.failed(("p", "d"), 21.0)
    assert bool(book.now().pairs) == (way == "waits")


def test_a_request_to_which_nothing_is_handed_over_sets_nobody_aside_who_does_that_for_others() -> None:
    book, now = aside(10.0)
    book.went_well(("p", "d"))
    book.hands_nothing_over("p")
    assert book.now() == NOBODY
    now[0] = 11.0
    book.hands_nothing_over("p")
    assert book.now().endpoints == {"p"}


async def test_a_beam_search_is_not_split(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async with pair(Hall()) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        assert (await ask(client, gateway, use_beam_search=True)).status_code == 200
        assert gateway.metric("prefixgate_split_decisions_total", reason="not_splittable") == 1
    assert (len(prefill.requests), len(decode.requests)) == (0, 1)


@pytest.mark.parametrize(
    "params",
    [b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}", b'{"a\xff":1}', b'{"a":"\xff"}'],
    ids=["deep", "key not UTF-8", "value not UTF-8"],
)
async def test_what_no_engine_could_read_is_not_handed_on_and_is_no_fault_of_the_clients(
    params: bytes, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    said = b'{"choices":[{"finish_reason":"length"}],"kv_transfer_params":' + params + b"}"

    async def keeps_alive(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        await peer.send(b"content-length: %d\r\n\r\n" % len(said) + said)

    async with pair(Hall(), keeps_alive) as (prefill, decode):
        gateway = await started(start_gateway, prefill, decode)
        assert (await ask(client, gateway)).status_code == 200
        assert gateway.metric("prefixgate_prefill_legs_total", endpoint="p", outcome="nothing_handed") == 1
