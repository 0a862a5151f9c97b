"""`/admin/disaggregation`: roles, handing over, and who is set aside."""

from fastapi import APIRouter

from gateway.disaggregation.aside import SetAside
from gateway.fleet import Fleet
from gateway.transfers import Transfers


def disaggregation_router(fleet: Fleet, set_aside: SetAside, transfers: Transfers) -> APIRouter:
    """The path; who uses it asks for a token."""
    router = APIRouter()

    @router.get("/admin/disaggregation")
    async def disaggregation() -> dict[str, object]:
        """Roles, how long it takes to hand a prompt over, and who is not asked since it failed at that."""
        aside = set_aside.now()
        return {
            "roles": fleet.roles.as_json(),
            "set_aside": sorted(aside.endpoints),
            "pairs_set_aside": [{"prefill": one, "decode": other} for one, other in sorted(aside.pairs)],
            "transfers": transfers.as_json(),
        }

    return router
