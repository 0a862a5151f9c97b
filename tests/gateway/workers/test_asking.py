"""What a worker asks of all, where the others are told what to say."""

import asyncio
from typing import Any, cast

from gateway.team.messages import Call, Crew, Metrics, Question, Reply
from gateway.workers.asking import Asking, SupervisorMetrics
from gateway.workers.child import Child
from tests.gateway.workers.test_metrics_of_all import counted, value

CALL = Call("GET", "/admin/parity", b"", (), b"")


class ScriptedLine:
    """Answers each kind of question."""

    def __init__(self, text: bytes, replies: list[Reply]) -> None:
        self.text = text
        self.replies = replies
        self.asked: list[Question] = []

    async def ask(self, question: Question, within_s: float) -> list[Reply]:
        assert within_s > 0
        self.asked.append(question)
        return [Reply(200, b"text/plain", self.text)] if isinstance(question, Metrics) else self.replies


class ScriptedChild:
    """A worker that is ready, or not."""

    def __init__(self, number: int, *, ready: bool = True, replies: int = 1) -> None:
        self.number = number
        self.is_ready, self.gone = asyncio.Event(), asyncio.Event()
        if ready:
            self.is_ready.set()
        said = [Reply(200, b"", b"%d" % number) for _ in range(replies)]
        self.line = ScriptedLine(counted(10**number), said)


def crew(*children: ScriptedChild, before: Any = None) -> tuple[Asking, list[Child]]:
    them = [cast("Child", child) for child in children]
    return Asking(them, SupervisorMetrics(lambda: Crew(2, 3)), before or {}), them


async def test_a_call_goes_to_all_others_that_are_ready() -> None:
    one, two, silent, starting = (
        ScriptedChild(1),
        ScriptedChild(2),
        ScriptedChild(3, replies=0),
        ScriptedChild(4, ready=False),
    )
    asking, (asker, *_) = crew(one, two, silent, starting)
    replies = await asking.answer(asker, CALL)
    assert [reply.body for reply in replies] == [b"2"]
    assert (one.line.asked, two.line.asked, starting.line.asked) == ([], [CALL], [])


async def test_metrics_are_those_of_all_the_asker_and_the_supervisor_included() -> None:
    asking, (asker, *_) = crew(ScriptedChild(1), ScriptedChild(2))
    (reply,) = await asking.answer(asker, Metrics())
    assert value(reply.body, "prefixgate_requests_total") == 110
    assert value(reply.body, "prefixgate_workers", state="alive") == 2
    assert value(reply.body, "prefixgate_workers", state="wanted") == 3
    assert value(reply.body, "prefixgate_worker_deaths_total") == 0


async def test_the_supervisor_does_its_part_before_others_are_asked() -> None:
    other = ScriptedChild(2)
    seen: list[int] = []

    async def reload() -> None:
        seen.append(len(other.line.asked))

    asking, (asker, _) = crew(ScriptedChild(1), other, before={CALL.path: reload})
    await asking.answer(asker, CALL)
    assert seen == [0]
    assert other.line.asked == [CALL]
