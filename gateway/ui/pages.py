"""The JSON pages of the dashboard: by name, each with the parameters that it takes. `books.py` has those of money."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from gateway.ui.asked import Asked
from gateway.ui.inside import Inside
from gateway.ui.kept import Kept
from gateway.ui.live import Live
from gateway.ui.types import JsonPage

MOST_DECISIONS: Final = 500
MOST_PREFIXES: Final = 200
_NODES: Final = 50_000
"""Of each shard: reading them takes some 1.5 s of processor time, in turns."""
_PREFIXES_KEPT_S: Final = 15.0
_FINDINGS_KEPT_S: Final = 5.0


class Pages:
    """What the gateway's own parts say, as pages; `books` are those out of the ledger, `others` finds further ones."""

    def __init__(
        self,
        live: Live,
        inside: Inside,
        books: Mapping[str, JsonPage],
        others: Callable[[str], JsonPage | None] = lambda _: None,
    ) -> None:
        self._live = live
        self._inside = inside
        self._others = others
        self._prefixes = Kept(_PREFIXES_KEPT_S)
        self._findings = Kept(_FINDINGS_KEPT_S)
        self._pages: Mapping[str, JsonPage] = {
            "fleet": JsonPage(self._fleet),
            "health": JsonPage(self._health),
            "prefixes": JsonPage(self._hottest, frozenset({"top"})),
            "decisions": JsonPage(self._decisions, frozenset({"limit", "tenant", "endpoint"})),
            "findings": JsonPage(self._found),
            **books,
        }

    def find(self, name: str) -> JsonPage | None:
        """The page of a name as it stands behind `api/`; a decision's has its id in it."""
        beginning, _, rest = name.partition("/")
        if beginning == "decisions" and rest:
            return JsonPage(lambda _: self._decision(rest))
        return self._pages.get(name) or self._others(name)

    async def _fleet(self, _: Asked) -> Any:
        page = await self._live.page()
        return {"as_of": self._live.now(), "endpoints": list(page["endpoints"].values()), "index": page["index"]}

    async def _health(self, _: Asked) -> Any:
        return {"as_of": self._live.now(), **await self._live.health()}

    async def _hottest(self, asked: Asked) -> Any:
        query = {"top": str(asked.number("top", 50, MOST_PREFIXES)), "max_nodes": str(_NODES)}

        async def read() -> Any:
            return {"as_of": self._live.now(), **await self._inside.page("/admin/index/top", query)}

        return await self._prefixes.get(query["top"], read)

    async def _decisions(self, asked: Asked) -> Any:
        most = asked.number("limit", 100, MOST_DECISIONS)
        rows = await self._live.decisions(most, asked.text("tenant"), asked.text("endpoint"))
        return {"as_of": self._live.now(), "decisions": rows}

    async def _decision(self, request_id: str) -> Any:
        return {"as_of": self._live.now(), **await self._inside.page(f"/admin/requests/{quote(request_id, safe='')}")}

    async def _found(self, _: Asked) -> Any:
        async def read() -> Any:
            lint, fixes = await self._inside.page("/admin/lint"), await self._inside.page("/admin/fixes")
            return {"as_of": self._live.now(), "lint": lint, "fixes": fixes}

        return await self._findings.get("", read)
