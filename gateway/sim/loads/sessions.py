"""Captured sessions of coding agents, one session a line, laid side by side in time.

    {"session": "trace_0001", "model": ..., "block_size": 64, "tool_tokens": 12974, "system_tokens": 4243,
     "requests": [{"t": 0.0, "in": 71175, "out": 169, "runs": [1, 1112], "api": 7.34, "think": 0.0}, ...]}

`t` is seconds from the start of the session, `api` how long the answer took, `think` the pause before the request. The
captures have no calendar: when a session starts is the reader's choice. Ids are local to a session, which sub-agents
share with their parent; what sessions do have in common, the schemas of tools and the system prompt of the same model
in the same version, is put back by naming that many leading blocks after (model, tool_tokens, system_tokens).

    name = 1 << 63 | kind << 32 | position          the common head, kinds counted in order of their appearance
    name = session + 1 << 40 | id                   all other blocks
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.sim.loads.again import dice_of
from gateway.sim.loads.errors import WorkloadInvalid
from gateway.sim.loads.flat import Count, Span
from gateway.sim.loads.lines import rows_of
from gateway.sim.loads.merging import Conversation, Draft, in_order_of_time
from gateway.sim.loads.names import names_from, names_of_runs, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import HASH_BYTES, Chain

SESSION_BITS = 40
COMMON, KIND_BITS = 1 << 63, 32
DEFAULT_EVERY_S = 120.0

Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << SESSION_BITS)]


class Step(msgspec.Struct, frozen=True, gc=False):
    """One request of a session; lengths in tokens, times in seconds. `agent` names a sub-agent, "" the main one."""

    t: Span
    input_tokens: Count = msgspec.field(name="in")
    output_tokens: Count = msgspec.field(name="out")
    runs: list[Id] = msgspec.field(default_factory=list)
    api: Span = 0.0
    think: Span = 0.0
    agent: str = ""


class Session(msgspec.Struct, frozen=True):
    """One line."""

    session: str
    block_size: Annotated[int, msgspec.Meta(gt=0)]
    requests: list[Step]
    model: str = ""
    tool_tokens: Count = 0
    system_tokens: Count = 0


SESSIONS = msgspec.json.Decoder(Session)


@dataclass(frozen=True, slots=True)
class SessionTrace:
    """A file of sessions, and when they start: `every_s` apart, or with a `seed` so far apart on average (Poisson).

    Iterating reads the file as far as sessions have started: memory for those that run. Raises WorkloadInvalid.
    """

    path: Path
    every_s: float
    seed: int | None
    limit_s: float | None
    share_common: bool

    def __iter__(self) -> Iterator[SimRequest]:
        """O(blocks) at the speed of `array`, and O(log sessions) a request."""
        for request in in_order_of_time(self._conversations()):
            if self.limit_s is not None and request.at_s > self.limit_s:
                return
            yield request

    def _conversations(self) -> Iterator[Conversation]:
        dice = None if self.seed is None else dice_of(self.seed)
        kinds: dict[tuple[str, int, int], int] = {}
        start_s = 0.0
        block_size: int | None = None
        for index, (line, session) in enumerate(rows_of(self.path, SESSIONS)):
            block_size = block_size or session.block_size
            self._check(line, session, block_size)
            kind = kinds.setdefault((session.model, session.tool_tokens, session.system_tokens), len(kinds))
            common_blocks = (session.tool_tokens + session.system_tokens) // block_size if self.share_common else 0
            common = names_from(COMMON | kind << KIND_BITS, common_blocks)
            yield _conversation(session, start_s, index + 1 << SESSION_BITS, common)
            start_s += self.every_s if dice is None else dice.expovariate(1 / self.every_s)

    def _check(self, line: int, session: Session, block_size: int) -> None:
        """Raise WorkloadInvalid, with the first request that is to blame."""
        if session.block_size != block_size:
            raise WorkloadInvalid(self.path, line, f"has blocks of {session.block_size}, earlier ones {block_size}")
        now_s = 0.0
        for number, step in enumerate(session.requests):
            blocks, counted = step.input_tokens // block_size, sum(step.runs[1::2])
            if len(step.runs) % 2:
                raise WorkloadInvalid(self.path, line, f"request {number}: `runs` wants pairs of first and count")
            if counted != blocks:
                raise WorkloadInvalid(self.path, line, f"request {number}: {counted} ids for {blocks} whole blocks")
            if step.t < now_s:
                raise WorkloadInvalid(self.path, line, f"request {number}: goes back in time, to {step.t:g} s")
            now_s = step.t


def _conversation(session: Session, start_s: float, base: int, common: bytes) -> Conversation:
    """One session. A sub-agent's first request comes after the latest one before it, whoever sent that."""
    ends: dict[str, tuple[int, float]] = {}
    latest: tuple[int, float] | None = None
    common_blocks = len(common) // HASH_BYTES
    for step in session.requests:
        shared = 0 if step.agent else min(common_blocks, step.input_tokens // session.block_size)
        names = common[: shared * HASH_BYTES] + names_of_runs(step.runs, base, shared)
        before = ends.get(step.agent)
        if before is not None:
            after, think_s = before[0], step.think
        elif latest is not None:
            after, think_s = latest[0], max(0.0, step.t - latest[1])
        else:
            after, think_s = None, 0.0
        chain = Chain(names, session.block_size, step.input_tokens)
        number = yield Draft(start_s + step.t, chain, step.output_tokens, session.session, "", after, think_s)
        latest = ends[step.agent] = (number, step.t + step.api)


def sessions(
    path: Path,
    *,
    every_s: float = DEFAULT_EVERY_S,
    seed: int | None = None,
    limit_s: float | None = None,
    share_common: bool = True,
) -> Workload:
    """The sessions of a file in its order, one each `every_s` seconds, up to and with `limit_s`.

    With a `seed` the gaps between starts are exponential with that mean. `share_common` gives main agents of the same
    (model, tool_tokens, system_tokens) the same leading blocks. `after` and `think_s` are as captured, so the load can
    be run as a closed loop. Raises WorkloadInvalid at once for the first line, and for later ones while iterating.
    """
    require(every_s > 0, "sessions start some time apart")
    _, first = next(rows_of(path, SESSIONS))
    requests = SessionTrace(path, every_s, seed, limit_s, share_common)
    return Workload(path.name.split(".")[0], first.block_size, requests)
