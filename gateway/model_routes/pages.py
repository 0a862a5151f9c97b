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
    stopped where one has stopped it. While a changed configuration is taken over, a name is of those that have it."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for page in pages:
        for row in page:
            by_name.setdefault(row["name"], []).append(row)
    return [_as_one(same) for same in by_name.values()]


def _as_one(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    row = same[0]
    rules = {rule for one in same for rule in one["requests"]}
    stopped = {arm["arm"]: arm["stopped"] for one in same for arm in one["arms"] if arm["stopped"]}
    merged = {
        **row,
        "requests": {rule: sum(one["requests"].get(rule, 0) for one in same) for rule in sorted(rules)},
        "arms": [{**arm, "stopped": stopped.get(arm["arm"])} for arm in row["arms"]],
    }
    if row["canary"] is not None:
        watching = [one["canary"] for one in same if one["canary"] and one["canary"]["arm"] == row["canary"]["arm"]]
        merged["canary"] = {
            **row["canary"],
            **{side: _side_of([one[side] for one in watching]) for side in ("watched", "others")},
        }
    return merged


def _side_of(sides: Sequence[dict[str, Any]]) -> dict[str, Any]:
    requests = sum(one["requests"] for one in sides)
    timed = [one for one in sides if one["median_ttft_s"] is not None]
    weight = sum(one["requests"] for one in timed)
    mean_s = sum(one["median_ttft_s"] * one["requests"] for one in timed) / weight if weight else None
    return {"requests": requests, "failed": sum(one["failed"] for one in sides), "median_ttft_s": mean_s}
