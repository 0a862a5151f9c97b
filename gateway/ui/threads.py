"""Threads that read the ledger for whoever looks at it, while requests go first.

A reading of a large ledger takes a core for seconds. On a busy machine the event loop would have to share its own time
with it, thread by thread; so these threads are nicer than it. They are few, and not those that requests need.
"""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

NICENESS: Final = 10
"""A tenth of the processor beside one that is not nice. Still less would be bad: they need the interpreter now and
then, and who has it must get on."""
_THREADS: Final = 2


def ledger_readers() -> ThreadPoolExecutor:
    """Threads for two readings at a time."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="ui-reader", initializer=_stand_back)


def _stand_back() -> None:
    """Of Linux alone: elsewhere the whole process would be nicer. Where that is forbidden, threads are as they are."""
    if sys.platform == "linux":
        own = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, own, max(os.getpriority(os.PRIO_PROCESS, own), NICENESS))
