"""A browser's part: log in, keep the cookie, read events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from gateway.ui.session import COOKIE

TOKEN = "a-token-of-the-dashboard"


def token_in(folder: Path) -> Path:
    """A file with the token."""
    path = folder / "ui-token"
    path.write_text(f"{TOKEN}\n")
    return path


@asynccontextmanager
async def looking(url: str, path: str = "/ui", token: str = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has logged in; its requests are relative to the dashboard."""
    async with httpx.AsyncClient(base_url=f"{url}{path}/", timeout=30) as client:
        answer = await client.post("login", json={"token": token})
        assert answer.status_code == 204, answer.text
        yield client


def cookie_of(client: httpx.AsyncClient) -> str:
    """The value of its session's cookie."""
    return str(client.cookies[COOKIE])


async def events_of(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream, with their data; comments are events without a name."""
    name, data = "", None
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        match field:
            case "event":
                name = value
            case "data":
                data = msgspec.json.decode(value)
            case "":
                if value:
                    yield "", value
                elif name:
                    yield name, data
                    name, data = "", None
