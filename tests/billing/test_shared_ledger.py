"""A ledger that one process owns and others write into: here both ends of the line are in one process."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from billing import Ledger, LedgerUnavailable, PriceBook, RowRefused, open_ledger
from billing import ledger_client as client_module
from billing import ledger_service as service_module
from billing.ledger import LedgerFigures
from billing.ledger_client import ledger_of_owner
from billing.ledger_frames import MOST_FRAME_BYTES, FrameInvalid, FrameReader, Records, State, encode, framed
from billing.ledger_service import LedgerService
from billing.types import Correction, CorrectionKind, EngineSample, KeptChain, Settlement
from billing.writer import Record
from tests.billing.samples import NOON, attempt, opened, price, settled


@asynccontextmanager
async def owned(path: Path) -> AsyncIterator[Ledger]:
    async with open_ledger(path, PriceBook("USD", (price(),))) as ledger:
        yield ledger


@asynccontextmanager
async def worker_of(service: LedgerService) -> AsyncIterator[Ledger]:
    """A worker's ledger; at the end the worker is gone, and the owner has looked after what it left."""
    ours, theirs = socket.socketpair()
    async with asyncio.TaskGroup() as group:
        group.create_task(service.serve(ours))
        async with ledger_of_owner(theirs) as ledger:
            yield ledger


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(query).fetchall()


async def test_rows_of_two_workers_are_durable_once_they_are_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with owned(path) as owner:
        service = LedgerService(owner)
        async with worker_of(service) as one, worker_of(service) as other:
            assert one.healthy
            assert other.healthy
            await asyncio.gather(one.open(opened("a")), other.open(opened("b")))
            await asyncio.gather(one.settle(settled("a", attempts=(attempt("a"),))), other.settle(settled("b")))
            assert rows(path, "SELECT request_id, state, charged_pico FROM settlements ORDER BY 1") == [
                ("a", "complete", 1237500000),
                ("b", "complete", 1237500000),
            ]


async def test_every_kind_of_record_arrives_as_it_was_put(tmp_path: Path) -> None:
    chain, sample = KeptChain(256, bytes(range(16))), EngineSample("gpu-a", NOON, 3, 10, None)
    given_back = Correction("c1", NOON, "a", "acme", None, None, CorrectionKind.CREDIT, "a gift", "USD", -5, -5)
    request = replace(opened("a"), chain=chain, job_id="run 7", tags={"team": "東京"})

    async def written(ledger: Ledger) -> None:
        records = (ledger.open(request), ledger.settle(settled("a", usage_json=b'{"a": 1}', attempts=(attempt("a"),))))
        await asyncio.gather(*records, ledger.correct(given_back), ledger.sample(sample))

    async with owned(tmp_path / "direct.db") as ledger:
        await written(ledger)
    async with owned(tmp_path / "shared.db") as owner, worker_of(LedgerService(owner)) as ledger:
        await written(ledger)
    for table in ("requests", "chains", "settlements", "attempts", "corrections", "engine_samples"):
        direct, shared = (rows(tmp_path / f"{name}.db", f"SELECT * FROM {table}") for name in ("direct", "shared"))
        owners = {
            row[0] for name in ("direct", "shared") for row in rows(tmp_path / f"{name}.db", "SELECT * FROM owners")
        }
        assert len(direct) == 1
        assert [[value for value in row if value not in owners] for row in direct] == [
            [value for value in row if value not in owners] for row in shared
        ]


async def test_what_a_worker_leaves_open_is_interrupted_and_what_another_has_open_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with owned(path) as owner:
        service = LedgerService(owner)
        async with worker_of(service) as survivor:
            await survivor.open(opened("lives"))
            async with worker_of(service) as ledger:
                await asyncio.gather(ledger.open(opened("left")), ledger.open(opened("ended")))
                await ledger.settle(settled("ended"))
            found = rows(path, "SELECT request_id, state, charged_pico, duration_s FROM settlements ORDER BY 1")
            assert [row[:2] for row in found] == [("ended", "complete"), ("left", "interrupted")]
            assert found[1][2:] == (None, None)
            async with worker_of(service) as successor:
                assert successor.interrupted == 1
            await survivor.settle(settled("lives"))
    async with owned(path) as again:
        assert again.interrupted == 0


async def test_an_owner_that_is_gone_fails_what_waits_and_what_comes() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(STATE)
    async with ledger_of_owner(theirs) as ledger:
        assert ledger.healthy
        waits = ledger.open(opened())
        ours.close()
        with pytest.raises(LedgerUnavailable, match="is gone"):
            await waits
        assert not healthy(ledger)
        with pytest.raises(LedgerUnavailable, match="is gone"):
            await ledger.settle(settled())


def healthy(ledger: Ledger) -> bool:
    """Asked through a function, since a type checker takes a property for a constant."""
    return ledger.healthy


async def test_an_owner_that_says_nothing_is_not_healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with owned(tmp_path / "ledger.db") as owner, worker_of(LedgerService(owner)) as ledger:
        assert ledger.healthy
        monkeypatch.setattr(client_module, "SILENT_S", -1.0)
        assert not healthy(ledger)


STATE = framed(encode(State(healthy=True, settled_twice=0, interrupted=0, spool=None)))


async def test_an_owner_that_never_says_anything_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_START_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, pytest.raises(LedgerUnavailable, match="said nothing within"):
        async with ledger_of_owner(theirs):
            pytest.fail("it was taken for usable")


@pytest.mark.parametrize("sent", [True, False])
async def test_what_is_not_acknowledged_when_a_worker_ends_has_failed(
    monkeypatch: pytest.MonkeyPatch, *, sent: bool
) -> None:
    monkeypatch.setattr(client_module, "_CLOSE_S", 0)
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(STATE)
        async with ledger_of_owner(theirs) as ledger:
            future = ledger.open(opened())
            await asyncio.sleep(0.01 if sent else 0)
            late = ledger.open(opened("late"))
        for one in (future, late):
            with pytest.raises(LedgerUnavailable, match="is gone"):
                await one


class ScriptedWriting:
    """Takes records, and says what it is told to: one outcome each, then that they are durable."""

    def __init__(self, *outcomes: LedgerUnavailable) -> None:
        self.healthy = True
        self.put_so_far: list[Record] = []
        self._outcomes = list(outcomes)

    def put(self, record: Record) -> asyncio.Future[None]:
        self.put_so_far.append(record)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._outcomes:
            self.healthy = False
            future.set_exception(self._outcomes.pop(0))
        else:
            self.healthy = True
            future.set_result(None)
        return future


async def test_that_the_ledger_is_away_is_told_at_once() -> None:
    writing = ScriptedWriting(LedgerUnavailable("disk full"))
    async with worker_of(LedgerService(Ledger(writing, LedgerFigures))) as ledger:
        with pytest.raises(LedgerUnavailable, match="disk full"):
            await ledger.open(opened())
        async with asyncio.timeout(0.5):  # and not with the next state, in a second
            while healthy(ledger):
                await asyncio.sleep(0)


async def test_what_was_left_open_is_closed_once_the_ledger_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "RETRY_S", 0.001)
    writing = ScriptedWriting()
    service = LedgerService(Ledger(writing, LedgerFigures))
    async with worker_of(service) as ledger:
        await asyncio.gather(ledger.open(opened("a")), ledger.open(opened("b")))
        writing._outcomes += [LedgerUnavailable("away"), RowRefused("b", "gone"), LedgerUnavailable("away")]
    closings = [(one.request_id, one.state) for one in writing.put_so_far if isinstance(one, Settlement)]
    again = closings[0][0] if closings[0][0] == closings[2][0] else closings[1][0]
    assert sorted(closings[:2]) == [("a", "interrupted"), ("b", "interrupted")]
    assert closings[2:] == [(again, "interrupted")] * 2
    async with worker_of(service) as successor:
        assert successor.interrupted == 1


async def test_an_acknowledgement_for_a_worker_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ours, theirs = socket.socketpair()
    async with owned(path) as owner, asyncio.TaskGroup() as group:
        serving = group.create_task(LedgerService(owner).serve(ours))
        theirs.sendall(framed(encode(Records(1, [opened()], [], [], []))))
        theirs.close()
        await serving
    assert rows(path, "SELECT request_id, state FROM settlements") == [("r1", "interrupted")]


async def test_a_row_that_is_no_text_or_was_never_opened_is_refused_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with owned(path) as owner, worker_of(LedgerService(owner)) as ledger:
        no_text = replace(opened("broken"), model="\ud800")
        outcomes = await asyncio.gather(
            ledger.open(opened("good")), ledger.open(no_text), ledger.settle(settled("never")), return_exceptions=True
        )
        assert outcomes[0] is None
        assert [type(one) for one in outcomes[1:]] == [RowRefused, RowRefused]
        assert str(outcomes[2]) == "usage ledger unavailable: row of request never refused: it was never opened"
        assert ledger.healthy


async def test_rows_beyond_those_that_may_wait_fail_at_once(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    async with owned(tmp_path / "ledger.db") as owner, asyncio.TaskGroup() as group:
        group.create_task(LedgerService(owner).serve(ours))
        async with ledger_of_owner(theirs, most_waiting=2) as ledger:
            futures = [ledger.open(opened(f"{number}")) for number in range(3)]
            assert not ledger.healthy
            with pytest.raises(LedgerUnavailable, match="2 rows wait already"):
                await futures[2]
            await asyncio.gather(*futures[:2])
            assert healthy(ledger)


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 30))
def test_frames_are_read_however_they_arrive(payloads: list[bytes], step: int) -> None:
    stream = b"".join(map(framed, payloads))
    reader = FrameReader()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [payload for piece in pieces for payload in reader.feed(piece)] == payloads


def test_a_length_that_no_frame_has_is_refused() -> None:
    with pytest.raises(FrameInvalid):
        list(FrameReader().feed((MOST_FRAME_BYTES + 1).to_bytes(4, "little")))
