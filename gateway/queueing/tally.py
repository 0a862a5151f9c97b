"""What waits, counted: by class and by tenant, requests and the bytes of their bodies. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.queueing.types import ClassRule, Ticket, WaitShed


@dataclass(slots=True)
class Count:
    """Requests that wait, and the bytes of their bodies."""

    requests: int = 0
    body_bytes: int = 0

    def add(self, ticket: Ticket) -> None:
        """One more waits."""
        self.requests += 1
        self.body_bytes += ticket.body_bytes

    def take(self, ticket: Ticket) -> None:
        """It waits no longer."""
        self.requests -= 1
        self.body_bytes -= ticket.body_bytes


class Tally:
    """All counts of one process. O(1) a call."""

    def __init__(self, classes: Sequence[ClassRule], tenant_requests: int, tenant_bytes: int) -> None:
        self._rules = classes
        self._tenant_requests = tenant_requests
        self._tenant_bytes = tenant_bytes
        self.classes = [Count() for _ in classes]
        self.tenants: dict[str, Count] = {}

    def refusal(self, ticket: Ticket) -> WaitShed | None:
        """Why it may not wait, None where it may. One alone may, however long its body is."""
        rule, count = self._rules[ticket.rank], self.classes[ticket.rank]
        tenant = self.tenants.get(ticket.tenant)
        if tenant is not None:
            if tenant.requests >= self._tenant_requests:
                return WaitShed.TENANT_FULL
            if tenant.body_bytes + ticket.body_bytes > self._tenant_bytes:
                return WaitShed.TENANT_BYTES
        if count.requests >= rule.max_requests:
            return WaitShed.CLASS_FULL
        if count.requests and count.body_bytes + ticket.body_bytes > rule.max_bytes:
            return WaitShed.CLASS_BYTES
        return None

    def add(self, ticket: Ticket) -> None:
        """It waits."""
        self.classes[ticket.rank].add(ticket)
        self.tenants.setdefault(ticket.tenant, Count()).add(ticket)

    def take(self, ticket: Ticket) -> None:
        """It waits no longer, whatever became of it."""
        self.classes[ticket.rank].take(ticket)
        tenant = self.tenants[ticket.tenant]
        tenant.take(ticket)
        if not tenant.requests:
            del self.tenants[ticket.tenant]
