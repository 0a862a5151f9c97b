"""For all tests: no property test is a test of the machine's speed, and all of them together take minutes.

Examples are the same in every run, so that what passes here passes there. HYPOTHESIS_PROFILE=thorough tries others each
time, and ten times as many where a test does not say how many.
"""

import asyncio
import gc
import os
import tempfile
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]  # typeshed leaves it out
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from tokenizers import Tokenizer

from prefix_index import tokens
from prefix_index.byte_pairs import BytePairs, byte_pairs
from tests.postgres import postgres_server

settings.register_profile("prefixgate", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=600)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "prefixgate"))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: a collection that looks through it takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _each_tokenizer_is_proved_once() -> Iterator[None]:
    """What the bytes of a file say is proved once a process, which takes half a second, and not once a gateway."""
    proved: dict[bytes, BytePairs | None] = {}

    def once(data: bytes, inner: Tokenizer) -> BytePairs | None:
        if data not in proved:
            if len(proved) == 8:
                proved.clear()
            proved[data] = byte_pairs(data, inner)
        return proved[data]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "byte_pairs", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _a_loop_that_ends_drops_its_connections() -> Iterator[None]:
    """One that was accepted, or not flushed yet, in the moment in which a test's loop ended would be complained of in
    whichever test the collector comes by. So would one that is accepted in the very turn in which its server is closed:
    asyncio gives it up half-made."""
    close, begin = asyncio.SelectorEventLoop.close, _SelectorSocketTransport.__init__

    def begin_or_close(transport: Any, *args: Any, **fields: Any) -> None:
        try:
            begin(transport, *args, **fields)
        except AssertionError:
            transport._sock.close()
            transport._sock = None
            raise

    def drop_and_close(loop: asyncio.SelectorEventLoop) -> None:
        if not loop.is_closed():
            left = [one for one in loop._transports.values() if one._sock is not None]  # type: ignore[attr-defined]
            for transport in left:
                transport.abort()
            if left:
                loop.run_until_complete(asyncio.sleep(0))  # each is told that its connection is lost
        close(loop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_SelectorSocketTransport, "__init__", begin_or_close)
        patch.setattr(asyncio.SelectorEventLoop, "close", drop_and_close)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """One PostgreSQL server a process that asks for it; the URL of its first database."""
    with (
        tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder,
        postgres_server(Path(folder)) as url,
    ):
        yield url


_databases = count()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """An empty database of the test's own."""
    name = f"ledger_{next(_databases)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")
