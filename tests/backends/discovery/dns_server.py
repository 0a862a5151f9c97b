"""A DNS server on a real port, told what to say."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


@dataclass
class DnsServer:
    """`zone`: name and kind -> time to live and the records' texts. A name that is not in it does not exist, one that
    is there with no record of a kind has none. `failure` is answered instead; `silent` answers nothing."""

    zone: dict[tuple[str, str], tuple[int, list[str]]] = field(default_factory=dict)
    failure: dns.rcode.Rcode | None = None
    silent: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    def answer(self, wire: bytes) -> bytes | None:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        if self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA | dns.flags.AA
        if self.failure is not None:
            response.set_rcode(self.failure)
        elif not any(known == name for known, _ in self.zone):
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif (name, kind) in self.zone:
            ttl, records = self.zone[name, kind]
            if records:
                response.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, *records))
        return response.to_wire()


@asynccontextmanager
async def dns_server() -> AsyncIterator[DnsServer]:
    """Run one until the block ends."""
    server = DnsServer()

    class Protocol(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.DatagramTransport, transport)  # its own class is not derived from it

        def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
            answer = server.answer(data)
            if answer is not None:
                self.transport.sendto(answer, addr)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        Protocol, ("127.0.0.1", 0), family=socket.AF_INET
    )
    server.port = transport.get_extra_info("sockname")[1]
    try:
        yield server
    finally:
        transport.close()
