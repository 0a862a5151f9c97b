"""What one worker asks of all: calls are passed on to the others, metrics are put together from everybody's."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.exposition import Form, told
from gateway.team.messages import Call, Crew, Metrics, Question, Reply
from gateway.workers.child import Child
from gateway.workers.expositions import Expositions

PATIENCE_S = 3.0
"""How long a worker may take to answer another one's question: less than that one waits."""
_SUPERVISOR = 0
"""Its number among the workers, who begin at 1."""


class SupervisorMetrics:
    """What the supervisor itself says."""

    def __init__(self, crew: Callable[[], Crew]) -> None:
        self.registry = CollectorRegistry()
        workers = Gauge("prefixgate_workers", "Worker processes: alive, wanted.", ["state"], registry=self.registry)
        workers.labels("alive").set_function(lambda: crew().alive)
        workers.labels("wanted").set_function(lambda: crew().wanted)
        self.deaths = Counter("prefixgate_worker_deaths", "Workers that ended by themselves.", registry=self.registry)


class Asking:
    """Answers workers on behalf of the others. `children` are all that run.

    `before` is what the supervisor itself does, by the path of a call, before others are asked.
    """

    def __init__(
        self,
        children: Collection[Child],
        metrics: SupervisorMetrics,
        before: Mapping[str, Callable[[], Awaitable[None]]],
    ) -> None:
        self.expositions = Expositions()
        self._children = children
        self._metrics = metrics
        self._before = before

    async def answer(self, asker: Child, question: Question) -> Sequence[Reply]:
        """What each of the others says; of metrics the one text of all, the asker's included."""
        if not isinstance(question, Metrics):
            if isinstance(question, Call) and question.path in self._before:
                await self._before[question.path]()
            answers = await self._ask([child for child in self._children if child is not asker], question)
            return [reply for replies in answers.values() for reply in replies]
        answers = await self._ask(list(self._children), Metrics())
        texts = {number: replies[0].body for number, replies in answers.items() if replies}
        texts[_SUPERVISOR] = told(self._metrics.registry, Form.OPEN_METRICS)
        form = Form.OPEN_METRICS if question.open_metrics else Form.TEXT
        return [Reply(200, form.value, await self.expositions.of_all(texts, form))]

    async def _ask(self, children: Sequence[Child], question: Question) -> dict[int, list[Reply]]:
        ready = [child for child in children if child.is_ready.is_set() and not child.gone.is_set()]
        answers = await asyncio.gather(*(child.line.ask(question, PATIENCE_S) for child in ready))
        return {child.number: answer for child, answer in zip(ready, answers, strict=True)}
