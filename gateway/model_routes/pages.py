"""Names of models under `/admin/routes`: what each means, what its arms got, and an arm stopped or let go on."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, HTTPException

from gateway.model_routes.routes import ModelRoutes, UnknownArm

ROUTES_PATH: Final = "/admin/routes"
_BY_OPERATOR: Final = "an operator stopped it"


def route_router(routes: ModelRoutes | None) -> APIRouter:
    """The routes; who uses them asks for a token. None: no names are configured."""
    router = APIRouter(prefix=ROUTES_PATH)

    @router.get("")
    async def names() -> list[dict[str, object]]:
        """Each configured name of a model: arms, shares, who serves them, requests so far, and the canary compared."""
        return [] if routes is None else routes.report()

    @router.post("", responses={404: {"description": "There is no such name, or arm of it."}})
    async def stop(name: str, arm: str, stopped: bool = True) -> dict[str, object]:
        """Give an arm nothing any more (`stopped=false`: its share again, and it is judged anew)."""
        if routes is None:
            raise HTTPException(404, "no names of models are configured")
        try:
            routes.stop(name, arm, _BY_OPERATOR if stopped else None)
        except UnknownArm as unknown:
            raise HTTPException(404, str(unknown)) from None
        return {"name": name, "arm": arm, "stopped": stopped}

    return router


def routes_page(pages: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The pages of several workers as one: requests and outcomes added up, medians of each side by requests, an arm
    stopped where one has stopped it."""
    merged = [dict(one) for one in pages[0]]
    for at, row in enumerate(merged):
        same = [page[at] for page in pages]
        rules = {rule for one in same for rule in one["requests"]}
        row["requests"] = {rule: sum(one["requests"].get(rule, 0) for one in same) for rule in sorted(rules)}
        row["arms"] = [
            {
                **arm,
                "stopped": next(
                    (one["arms"][number]["stopped"] for one in same if one["arms"][number]["stopped"]), None
                ),
            }
            for number, arm in enumerate(row["arms"])
        ]
        if row["canary"] is not None:
            row["canary"] = {
                **row["canary"],
                **{side: _side_of([one["canary"][side] for one in same]) for side in ("watched", "others")},
            }
    return merged


def _side_of(sides: Sequence[dict[str, Any]]) -> dict[str, Any]:
    requests = sum(one["requests"] for one in sides)
    timed = [one for one in sides if one["median_ttft_s"] is not None]
    weight = sum(one["requests"] for one in timed)
    mean_s = sum(one["median_ttft_s"] * one["requests"] for one in timed) / weight if weight else None
    return {"requests": requests, "failed": sum(one["failed"] for one in sides), "median_ttft_s": mean_s}
