"""Threads that read the ledger for who looks at it: they stand back behind the event loop, and nobody else does."""

import os
import sys
import threading

import pytest

from gateway.ui.threads import NICENESS, ledger_readers


def own_niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no niceness of their own")
def test_a_reader_is_nicer_than_who_serves_requests() -> None:
    before = own_niceness()
    with ledger_readers() as threads:
        assert threads.submit(own_niceness).result() == max(before, NICENESS)
    assert own_niceness() == before
