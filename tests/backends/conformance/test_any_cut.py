"""Any answer, cut into any pieces on a real socket, is the same answer; and so are several on one connection."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.client import UpstreamClient
from backends.errors import DialFailed, UpstreamProtocolError, UpstreamReset
from tests.backends.conformance.answers import Answer, Framing, answers, cuts
from tests.backends.conformance.conftest import Run
from tests.backends.upstream import CHAT, PATIENT, endpoint
from tests.hostile import Behaviour, HostileServer, Peer

FEWER = settings(max_examples=30, deadline=None)


def in_pieces(*each: Sequence[bytes]) -> Behaviour:
    """An answer in pieces to each request, then the end of the connection."""

    async def behave(peer: Peer) -> None:
        for pieces in each:
            await peer.read_request()
            for piece in pieces:
                await peer.send(piece)
                await asyncio.sleep(0)

    return behave


async def ask(client: UpstreamClient, server: HostileServer) -> tuple[int, object, bytes, bool]:
    async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
        return response.status, response.headers, await response.read(1_000_000), response.reused_connection


@FEWER
@given(st.data(), answers())
def test_any_cutting_of_an_answer_is_the_same_answer(run: Run, data: st.DataObject, answer: Answer) -> None:
    pieces = data.draw(cuts(answer.wire))

    async def case() -> None:
        async with HostileServer([in_pieces(pieces)]) as server, UpstreamClient() as client:
            assert await ask(client, server) == (answer.status, answer.headers, answer.body, False)

    run(case())


@FEWER
@given(st.data(), st.lists(answers(), min_size=2, max_size=4))
def test_answers_one_after_the_other_do_not_touch_each_other(
    run: Run, data: st.DataObject, several: list[Answer]
) -> None:
    pieces = [data.draw(cuts(answer.wire)) for answer in several]

    async def case() -> None:
        async with HostileServer(connections(several, pieces)) as server, UpstreamClient() as client:
            for answer, reused in zip(several, [False, *(one.keeps for one in several)], strict=False):
                assert await ask(client, server) == (answer.status, answer.headers, answer.body, reused)

    run(case())


def connections(several: list[Answer], pieces: list[list[bytes]]) -> list[Behaviour]:
    """The answers shared out among connections: the next one begins where one may not be reused."""
    shares: list[list[list[bytes]]] = [[]]
    for answer, cut in zip(several, pieces, strict=True):
        shares[-1].append(cut)
        if not answer.keeps:
            shares.append([])
    return [in_pieces(*share) for share in shares]


@FEWER
@given(st.data(), answers().filter(lambda answer: answer.framing is not Framing.UNTIL_CLOSE))
def test_an_answer_that_breaks_off_anywhere_is_never_taken_for_whole(
    run: Run, data: st.DataObject, answer: Answer
) -> None:
    sent = answer.wire[: data.draw(st.integers(0, len(answer.wire) - 1))]

    async def case() -> None:
        async with HostileServer([in_pieces([sent] if sent else [])]) as server, UpstreamClient() as client:
            with pytest.raises((DialFailed, UpstreamReset)):
                await ask(client, server)
            assert len(server.peers) == 1

    run(case())


@FEWER
@given(st.binary(min_size=1, max_size=300))
def test_noise_is_an_error_of_the_endpoint_and_nothing_else(run: Run, noise: bytes) -> None:
    async def case() -> None:
        async with HostileServer([in_pieces([noise])]) as server, UpstreamClient() as client:
            with pytest.raises((DialFailed, UpstreamProtocolError)):
                await client.send(endpoint(server.url), CHAT, PATIENT)

    run(case())
