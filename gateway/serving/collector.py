"""The garbage collector of a process that serves: what stays is left alone, the rest is looked through seldom.

    at the start    all that is there stays for good          frozen: no collection goes through it again
    then            a generation is looked through after      700 -> 10,000 new objects, 10 -> 20 collections

Nearly all that a request makes is gone with it by counting references; cycles are what tracebacks and cut answers
leave. With Python's own thresholds collections took 65 us of a request, with these 18 (in process, 16 at once, on two
shared cores), and full ones, which stop everything, are rare. 10,000 objects are a few MB.

Loading leaves holes in the allocator's memory (vocabularies are read as JSON); glibc gives them back only when asked.
"""

import ctypes
import gc
from contextlib import suppress
from typing import Final

THRESHOLDS: Final = (10_000, 20, 20)


def calm_collector() -> None:
    """Once, when all is loaded and the server is about to take requests. Some 0.2 s."""
    gc.collect()
    with suppress(AttributeError, OSError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
