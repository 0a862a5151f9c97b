"""The paths that an engine's allow-list opens, and the fields a client cannot set, are documented."""

import re
from pathlib import Path

from backends import Metering
from backends.dialects import DIALECTS
from gateway.edge.control_fields import ALTERING_FIELDS, ENGINE_CONTROL_FIELDS, ENGINE_CONTROL_HEADERS
from gateway.types import Route

DOCS = Path(__file__).parents[2] / "docs"


def documented(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", (DOCS / page).read_text()))


def test_every_open_path_is_documented() -> None:
    opened = {path for dialect in DIALECTS for path in dialect.open_paths}
    assert opened - documented("dialects.md") == set()


def test_every_path_is_documented_where_it_is_paid_for_or_where_it_is_free() -> None:
    text = (DOCS / "dialects.md").read_text()
    columns = [row.split("|") for row in text.splitlines() if row.startswith("|") and "POST /" in row]
    free, metered = (" ".join(row[column] for row in columns) for column in (2, 3))
    for dialect in DIALECTS:
        for path, metering in dialect.open_paths.items():
            assert f"`{path}`" in (free if metering is Metering.FREE else metered)


def test_every_route_is_documented() -> None:
    assert {route.value for route in Route if route is not Route.OTHER} - documented("dialects.md") == set()


def test_every_field_and_header_that_is_taken_out_is_documented() -> None:
    denied = {*ENGINE_CONTROL_FIELDS, *(name.decode() for name in ENGINE_CONTROL_HEADERS)}
    assert denied - documented("api.md") == set()


def test_every_field_that_takes_affinity_away_is_documented() -> None:
    text = (DOCS / "api.md").read_text()
    assert [name for name in ALTERING_FIELDS if f"`{name}`" not in text] == []
