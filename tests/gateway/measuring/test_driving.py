"""How a load leaves: at its time, and without one request waiting for all the others to be written."""

import time
from collections.abc import Iterator

from backends.client import UpstreamClient
from backends.types import EndpointConfig, EndpointId
from gateway.measuring.asking import Asker
from gateway.measuring.driving import Phase, drive_open
from tests.ports import free_port

SHORT = Phase(warm_s=0.0, seconds=30.0, drain_s=10.0)


async def test_requests_that_are_due_at_once_leave_while_the_others_are_written() -> None:
    left_before: list[int] = []
    async with UpstreamClient() as client:
        nobody = EndpointConfig(EndpointId("a"), f"http://127.0.0.1:{free_port()}")
        asker = Asker(client, nobody, time.monotonic())

        def due_now() -> Iterator[tuple[float, bytes]]:
            for _ in range(20):
                left_before.append(len(asker.late_s))
                yield 0.0, b"{}"

        await drive_open(asker, due_now(), SHORT)
    assert len(asker.seen) == 20
    assert left_before[-1] >= 15
