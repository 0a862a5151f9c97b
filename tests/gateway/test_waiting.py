"""Waiting for the ledger: what it says is what the waiter gets, and giving up stops nothing."""

import asyncio

import pytest

from billing import LedgerUnavailable
from gateway import waiting
from gateway.waiting import in_time


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_waiter_goes_on_when_the_ledger_has_it(at_once: bool) -> None:
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if at_once:
        written.set_result(None)
    else:
        asyncio.get_running_loop().call_soon(written.set_result, None)
    await in_time(written)


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_waiter_is_told_why_it_was_not_written(at_once: bool) -> None:
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failure = LedgerUnavailable("full")
    if at_once:
        written.set_exception(failure)
    else:
        asyncio.get_running_loop().call_soon(written.set_exception, failure)
    with pytest.raises(LedgerUnavailable, match="full"):
        await in_time(written)


async def test_a_ledger_that_says_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEDGER_DEADLINE_S", 0.01)
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(LedgerUnavailable, match="no acknowledgement"):
        await in_time(written)
    assert not written.done()
    written.set_exception(LedgerUnavailable("later"))  # nobody waits, and nobody is told that nobody asked


async def test_a_waiter_that_is_cancelled_leaves_the_writing_alone() -> None:
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(in_time(written))
        await asyncio.sleep(0)
        waiter.cancel()
    assert waiter.cancelled()
    assert not written.cancelled()
    written.set_result(None)
