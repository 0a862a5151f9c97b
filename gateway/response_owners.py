"""Who may see a response that an engine keeps, and where it is.

    response id --> (tenant, endpoint)        bounded, the oldest out first

A response id belongs to an endpoint and a tenant: a request that continues it, reads it or cancels it goes there, and
to anyone else it does not exist. Engines know nothing of tenants, so without this one tenant could read another's
conversation by its id.

Kept in this process: an id that another replica has seen, or that was made before a restart, is unknown here, and
unknown means 404, never somebody else's response.
"""

from dataclasses import dataclass
from typing import Final

from gateway.types import TenantId

MOST_KEPT: Final = 65_536
"""About 20 MB."""
LONGEST_ID_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class _Owner:
    tenant_id: TenantId
    endpoint_id: str


class ResponseOwners:
    """Ids of responses to who owns them. Both methods are O(1)."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._owners: dict[str, _Owner] = {}

    def remember(self, response_id: str, tenant_id: TenantId, endpoint_id: str) -> None:
        """An endpoint made this response for this tenant. The first owner of an id stays its owner."""
        if len(response_id) > LONGEST_ID_CHARS or response_id in self._owners:
            return
        self._owners[response_id] = _Owner(tenant_id, endpoint_id)
        if len(self._owners) > self._most:
            del self._owners[next(iter(self._owners))]

    def endpoint_of(self, response_id: str, tenant_id: TenantId) -> str | None:
        """Where the response is; None where it is not known, or not this tenant's."""
        owner = self._owners.get(response_id)
        return owner.endpoint_id if owner is not None and owner.tenant_id == tenant_id else None
