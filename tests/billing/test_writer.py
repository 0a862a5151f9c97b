"""The writing thread, over a store that does as it is told."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from billing import LedgerUnavailable, OpenedRequest, RowRefused
from billing import writer as writer_module
from billing.writer import MOST_IN_BATCH, Outcome, Record, Writer
from tests.billing.samples import opened
from tests.until import until


class ScriptedStore:
    """Writes into a list; each batch waits until `gate` is open. Request ids beginning with `bad` are refused."""

    def __init__(self) -> None:
        self.healthy = True
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.broken = False
        self.refuses_to_start = False
        self.dies_at_start = False
        self.dies = False
        self.closed = False
        self.probes = 0
        self.tended = threading.Event()

    def start(self) -> None:
        if self.refuses_to_start:
            raise LedgerUnavailable("no disk")
        if self.dies_at_start:
            raise RuntimeError("a fault of ours")

    def write(self, records: Sequence[Record]) -> Sequence[Outcome]:
        self.entered.set()
        assert self.gate.wait(10)
        if self.dies:
            raise RuntimeError("a fault of ours")
        self.healthy = not self.broken
        if self.broken:
            return [LedgerUnavailable("disk full") for _ in records]
        ids = [record.request_id for record in records if isinstance(record, OpenedRequest)]
        self.batches.append(ids)
        return [RowRefused(id_, "bad") if id_.startswith("bad") else None for id_ in ids]

    def probe(self) -> None:
        self.probes += 1
        self.healthy = not self.broken

    def tend(self) -> None:
        self.tended.set()

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def running(store: ScriptedStore, most_waiting: int = 10_000) -> AsyncIterator[Writer]:
    writer = Writer(store, most_waiting=most_waiting)
    try:
        await writer.start()
        yield writer
    finally:
        store.gate.set()
        await writer.close()


def healthy(writer: Writer) -> bool:
    """Asked through a function, since a type checker takes a property for a constant."""
    return writer.healthy


async def until_entered(store: ScriptedStore) -> None:
    assert await asyncio.to_thread(store.entered.wait, 10)


async def test_what_waits_during_a_commit_shares_the_next_in_order() -> None:
    store = ScriptedStore()
    store.gate.clear()
    async with running(store) as writer:
        first = writer.put(opened("0"))
        await until_entered(store)
        rest = [writer.put(opened(f"{n}")) for n in range(1, 50)]
        store.gate.set()
        await asyncio.gather(first, *rest)
    assert store.batches == [["0"], [f"{n}" for n in range(1, 50)]]
    assert store.closed


async def test_rows_of_one_turn_of_the_loop_are_one_batch_of_an_idle_writer() -> None:
    store = ScriptedStore()
    async with running(store) as writer:
        await asyncio.gather(*(writer.put(opened(f"{n}")) for n in range(20)))
        await writer.put(opened("next"))
    assert store.batches == [[f"{n}" for n in range(20)], ["next"]]


async def test_a_batch_is_bounded() -> None:
    store = ScriptedStore()
    store.gate.clear()
    async with running(store) as writer:
        writer.put(opened("0"))
        await until_entered(store)
        rest = [writer.put(opened(f"{n}")) for n in range(MOST_IN_BATCH + 1)]
        store.gate.set()
        await asyncio.gather(*rest)
    assert [len(batch) for batch in store.batches] == [1, MOST_IN_BATCH, 1]


async def test_each_row_of_a_batch_has_its_own_outcome() -> None:
    async with running(ScriptedStore()) as writer:
        outcomes = await asyncio.gather(
            writer.put(opened("1")), writer.put(opened("bad")), writer.put(opened("2")), return_exceptions=True
        )
    assert outcomes[0] is outcomes[2] is None
    assert isinstance(outcomes[1], RowRefused)


async def test_a_full_queue_fails_at_once_and_then_takes_rows_again() -> None:
    store = ScriptedStore()
    store.gate.clear()
    async with running(store, most_waiting=3) as writer:
        taken = [writer.put(opened(f"{n}")) for n in range(3)]
        assert not healthy(writer)
        refused = writer.put(opened("4"))
        assert refused.done()
        with pytest.raises(LedgerUnavailable, match="3 rows wait already"):
            await refused
        store.gate.set()
        await asyncio.gather(*taken)
        assert healthy(writer)
        await writer.put(opened("5"))


async def test_closing_writes_what_waits_and_refuses_what_comes_later() -> None:
    store = ScriptedStore()
    store.gate.clear()
    writer = Writer(store, most_waiting=100)
    await writer.start()
    first = writer.put(opened("0"))
    await until_entered(store)
    waiting = [writer.put(opened(f"{n}")) for n in range(1, 4)]
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.close())
        await asyncio.sleep(0)
        assert not healthy(writer)
        with pytest.raises(LedgerUnavailable, match="closed"):
            await writer.put(opened("late"))
        store.gate.set()
    await asyncio.gather(first, *waiting)
    assert store.batches == [["0"], ["1", "2", "3"]]
    await writer.close()


async def test_a_store_that_cannot_start_says_why_and_leaves_no_thread() -> None:
    store = ScriptedStore()
    store.refuses_to_start = True
    writer = Writer(store, most_waiting=10)
    with pytest.raises(LedgerUnavailable, match="no disk"):
        await writer.start()
    await writer.close()
    assert store.closed
    assert "ledger-writer" not in {thread.name for thread in threading.enumerate()}


async def test_a_machine_without_room_for_a_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_room)
    with pytest.raises(RuntimeError, match="new thread"):
        async with running(ScriptedStore()):
            pass


async def test_the_writer_survives_a_store_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "PROBE_S", 0.01)
    store = ScriptedStore()
    store.broken = True
    async with running(store) as writer:
        with pytest.raises(LedgerUnavailable, match="disk full"):
            await writer.put(opened("1"))
        assert not healthy(writer)
        with pytest.raises(LedgerUnavailable, match="disk full"):
            await writer.put(opened("2"))
        store.broken = False
        await writer.put(opened("3"))
        assert healthy(writer)
    assert store.batches == [["3"]]


async def test_an_unhealthy_store_is_probed_until_it_works_though_no_row_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_module, "PROBE_S", 0.001)
    store = ScriptedStore()
    store.broken = True
    async with running(store) as writer:
        with pytest.raises(LedgerUnavailable):
            await writer.put(opened("1"))
        store.broken = False
        await until(lambda: healthy(writer))
    assert store.probes > 0


async def test_a_failure_that_nobody_waits_for_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = ScriptedStore()
    store.broken = True
    with caplog.at_level(logging.DEBUG):
        async with running(store, most_waiting=1) as writer:
            writer.put(opened("1"))
            writer.put(opened("2"))
        gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.ERROR] == []


async def test_a_waiter_that_gave_up_disturbs_nobody() -> None:
    store = ScriptedStore()
    store.gate.clear()
    async with running(store) as writer:
        given_up, kept = writer.put(opened("1")), writer.put(opened("2"))
        given_up.cancel()
        store.gate.set()
        await kept
    assert [id_ for batch in store.batches for id_ in batch] == ["1", "2"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_after_a_fault_in_the_thread_nobody_waits_for_ever() -> None:
    store = ScriptedStore()
    store.gate.clear()
    async with running(store) as writer:
        first = writer.put(opened("1"))
        await until_entered(store)
        second = writer.put(opened("2"))
        store.dies = True
        store.gate.set()
        for future in (first, second):
            with pytest.raises(LedgerUnavailable, match="its writer"):
                await future
        with pytest.raises(LedgerUnavailable, match="closed"):
            await writer.put(opened("3"))
        assert not healthy(writer)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_after_a_fault_at_the_start_nobody_waits_for_ever() -> None:
    store = ScriptedStore()
    store.dies_at_start = True
    writer = Writer(store, most_waiting=10)
    with pytest.raises(LedgerUnavailable, match="at the start"):
        await writer.start()
    await writer.close()
    assert store.closed


def test_a_loop_that_was_closed_too_early_costs_no_row() -> None:
    store = ScriptedStore()
    store.gate.clear()

    async def leave() -> Writer:
        writer = Writer(store, most_waiting=10)
        await writer.start()
        writer.put(opened("1"))
        return writer

    loop = asyncio.new_event_loop()
    writer = loop.run_until_complete(leave())
    loop.close()
    store.gate.set()
    writer._queue.put(None)
    writer._thread.join(10)
    assert store.batches == [["1"]]
    assert store.closed


async def test_a_store_that_works_is_tended_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "PROBE_S", 0.001)
    store = ScriptedStore()
    async with running(store):
        assert await asyncio.to_thread(store.tended.wait, 10)
    assert store.probes == 0
