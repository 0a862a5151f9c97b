"""The line between a worker and its supervisor."""

import asyncio
import socket

import pytest

from gateway.team import member as member_module
from gateway.team.line import Line
from gateway.team.member import Served, Team
from gateway.team.messages import Call, Crew, Drained, Farewell, Healthy, Metrics, Note, Question, Ready, Reply, Terms


async def test_two_ends_of_a_line_ask_and_answer_each_other() -> None:
    one, other = socket.socketpair()
    gone = asyncio.Event()
    terms = Terms(b"{}", 1, 2, "unix:///x")
    team = Team(one, one, terms, stop=gone.set)
    assert (team.redis_url, team.leads) == ("unix:///x", False)
    heard: list[Note] = []

    async def answer(question: Question) -> list[Reply]:
        assert not isinstance(question, Call), "a fault of ours"
        return [Reply(200, b"text/plain", b"all")]

    async def text() -> bytes:
        return b"x" * (1 << 21)  # more than a socket takes at once

    drained: list[str] = []

    async def serve(call: Call) -> Reply:
        return Reply(200, b"text/plain", call.path.encode())

    team.serve(Served(serve, text, lambda: Reply(200, b"", b"healthy"), drained.append))
    supervisor = Line(other, answer, heard.append)
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        async with team.joined():
            team.ready()
            supervisor.say(Crew(1, 2))
            supervisor.say(Drained(["a"], True))
            assert await team.ask(Metrics()) == [Reply(200, b"text/plain", b"all")]
            assert await team.ask(Call("GET", "/", b"", (), b"")) == []
            assert await supervisor.ask(Call("GET", "/x", b"", (), b""), 5) == [Reply(200, b"text/plain", b"/x")]
            assert await supervisor.ask(Healthy(), 5) == [Reply(200, b"", b"healthy")]
            assert (team.crew, drained) == (Crew(1, 2), ["a"])
    assert [type(note) for note in heard] == [Ready, Farewell]
    assert heard[1] == Farewell(await text())
    assert await supervisor.ask(Metrics(), 5) == []
    assert not gone.is_set()


async def test_a_worker_hears_that_its_supervisor_is_gone() -> None:
    ours, theirs = socket.socketpair()
    gone = asyncio.Event()
    team = Team(theirs, theirs, Terms(b"{}", 0, 1, None), stop=gone.set)
    async with team.joined():
        ours.close()
        await asyncio.wait_for(gone.wait(), 10)
        assert await team.ask(Metrics()) == []


async def test_a_question_that_is_not_answered_in_time_has_no_answer() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        team = Team(theirs, theirs, Terms(b"{}", 0, 1, None), stop=lambda: None)
        async with team.joined():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(member_module, "PATIENCE_S", 0.01)
                assert await team.ask(Metrics()) == []
