"""The client left: what is done for it ends, at once.

our own server      tells the request, whose task is cancelled: nothing is paid for a client that stays
any ASGI server     a second task waits for the message that says so
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from gateway.wire import ClientStream

_T = TypeVar("_T")


class ClientLeft(Exception):
    """The client closed its connection before the answer was whole."""


async def while_client_stays(client: ClientStream, work: Coroutine[object, object, _T]) -> _T | None:
    """What `work` gives; it is cancelled when the client leaves, and nothing comes of it. Raises what `work` raises."""
    served = client.served
    if served is None:
        return await _beside_a_watcher(client, work)
    task = asyncio.current_task()
    assert task is not None
    served.on_leave(task.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if not served.gone or task.uncancel():  # the server stops
            raise
        return None
    finally:
        served.on_leave(None)


async def _beside_a_watcher(client: ClientStream, work: Coroutine[object, object, _T]) -> _T | None:
    done: list[_T] = []
    failure: list[Exception] = []

    async def watch() -> None:
        while (await client.receive())["type"] != "http.disconnect":
            pass
        raise ClientLeft

    async def run() -> None:
        try:
            done.append(await work)
        except Exception as error:  # noqa: BLE001 - kept out of the group, which would wrap it, and raised below
            failure.append(error)

    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(watch())
            await run()
            watcher.cancel()
    except* ClientLeft:
        pass
    if failure:
        raise failure[0]
    return done[0] if done else None
