"""What these tests ask, and how they look at what came of it."""

import asyncio
import json
import sqlite3
from contextlib import closing

from tests.gateway.conftest import LedgerRow, ledger_rows, settled
from tests.gateway.epp.conftest import RunningPicker
from tests.gateway.epp.front import EngineAnswer
from tests.gateway.scripted_engine import USAGE
from tests.until import until

CHAT = "/v1/chat/completions"
TEXT = "Answer politely, and never guess what is not known. " * 40
HELLO = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}}], "usage": USAGE}
SAYS_HELLO = EngineAnswer(200, [("content-type", "application/json")], [json.dumps(HELLO).encode()])


def chat(question: str, **more: object) -> bytes:
    """The body of a chat with a long prefix that all have in common."""
    messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": question}]
    return json.dumps({"model": "simulated", "messages": messages, "max_tokens": 4, **more}).encode()


def rows_now(picker: RunningPicker) -> int:
    """How many requests are settled."""
    return len(ledger_rows(picker.pages.ledger_path))


async def last_row(picker: RunningPicker, before: int) -> LedgerRow:
    """The row that has come since there were so many."""
    return (await settled(picker.pages, before + 1))[-1]


def in_flight(picker: RunningPicker) -> int:
    """Requests that are reserved at endpoints."""
    endpoints = picker.pages.http.get("/health").json()["endpoints"]
    return sum(endpoint["in_flight_requests"] for endpoint in endpoints.values())


async def nothing_stays_reserved(picker: RunningPicker, within_s: float = 30) -> None:
    """Wait until nothing is in flight, no stream open, and every request settled."""
    await until(lambda: asyncio.to_thread(_is_busy, picker), lambda busy: not busy, within_s=within_s)


def _is_busy(picker: RunningPicker) -> bool:
    if in_flight(picker) or picker.pages.metric("prefixgate_epp_open_streams"):
        return True
    with closing(sqlite3.connect(f"file:{picker.pages.ledger_path}?mode=ro", uri=True)) as ledger:
        ((opened, settled),) = ledger.execute(
            "SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM settlements)"
        )
    return bool(opened != settled)
