"""The Grafana dashboards of the chart: each query asks for what there is, each panel says what it shows, in a unit."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import promql_parser as promql
import pytest

from helm.dashboards.__main__ import DASHBOARDS, FOLDER, text_of
from tests.gateway.conftest import StartGateway, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.monitoring.declared import declared, series
from tests.monitoring.queries import labels_of
from tests.monitoring.test_rules import RECORDINGS, level_of

Panel = dict[str, Any]
KINDS = {"timeseries", "stat", "state-timeline"}
"""Kinds of panels that Grafana has had since version 8, and has."""
UNITS = {"none", "short", "s", "bytes", "percentunit", "reqps", "ops"}
KNOWN = {
    **series(),
    **{rule["record"]: frozenset(level_of(rule["record"])) for rule in RECORDINGS},
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
}


def read(name: str) -> dict[str, Any]:
    board: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return board


def panels(name: str) -> list[Panel]:
    return [panel for panel in read(name)["panels"] if panel["type"] != "row"]


def query_of(expr: str, *, window: str = "5m") -> str:
    """A query as Grafana asks it, with everything chosen."""
    chosen = {"namespace": ".*", "endpoint": ".*", "__range": "1h", "__rate_interval": window}
    chosen |= {"input_price": "0.60", "cached_price": "0.06", "output_price": "2.40"}
    return re.sub(r"\$(\w+)", lambda found: chosen[found[1]], expr)


def queries() -> Iterator[tuple[str, Panel, dict[str, Any]]]:
    for name in DASHBOARDS:
        for panel in panels(name):
            for target in panel["targets"]:
                yield name, panel, target


each_board = pytest.mark.parametrize("name", DASHBOARDS)


@each_board
def test_a_dashboard_is_what_its_python_makes(name: str) -> None:
    assert (FOLDER / name).read_text() == text_of(DASHBOARDS[name]), "python -m helm.dashboards"


def test_there_is_no_dashboard_that_nothing_makes() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(DASHBOARDS)


def test_every_query_asks_for_series_and_labels_that_there_are() -> None:
    for name, panel, target in queries():
        labels = labels_of(promql.parse(query_of(target["expr"])), KNOWN)
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert named <= labels, f"{name}: {panel['title']}: {named - labels}"
        assert len(panel["targets"]) == 1 or named or target["legendFormat"] != "__auto"


def test_every_query_is_of_the_namespace_that_was_chosen() -> None:
    for _, panel, target in queries():
        expr = target["expr"]
        asked = len(re.findall(r"prefixgate_\w+{|:\w+{", expr))
        assert expr.count('namespace=~"$namespace"') == asked, panel["title"]


def test_every_panel_says_what_it_shows_in_a_unit() -> None:
    for name in DASHBOARDS:
        for panel in panels(name):
            assert panel["type"] in KINDS
            assert panel["description"].endswith("."), panel["title"]
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["unit"] in UNITS
            values = [step["value"] for step in defaults["thresholds"]["steps"]]
            assert values[0] is None
            assert values[1:] == sorted(values[1:])
        titles = [panel["title"] for panel in panels(name)]
        assert len(set(titles)) == len(titles)


@each_board
def test_panels_lie_side_by_side_within_the_page(name: str) -> None:
    covered: set[tuple[int, int]] = set()
    for panel in read(name)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & covered, panel["title"]
        covered |= cells
    ids = [panel["id"] for panel in read(name)["panels"]]
    assert len(set(ids)) == len(ids)


@each_board
def test_a_dashboard_is_of_no_one_place(name: str) -> None:
    board = read(name)
    assert re.fullmatch(r"prefixgate-\w+", board["uid"])
    sources = {json.dumps(target["datasource"]) for panel in panels(name) for target in panel["targets"]}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert list(variables)[:2] == ["datasource", "namespace"]
    assert {one["query"]["query"] for one in variables.values() if one["type"] == "query"} <= {
        "label_values(prefixgate_in_flight_requests, namespace)",
        'label_values(prefixgate_endpoint_healthy{namespace=~"$namespace"}, endpoint)',
    }
    used = set(re.findall(r"\$(\w+)", json.dumps([panel["targets"] for panel in panels(name)])))
    assert used - {"__range", "__rate_interval", "namespace"} == set(variables) - {"namespace", "datasource"}


def test_every_dashboard_has_a_uid_of_its_own() -> None:
    assert len({read(name)["uid"] for name in DASHBOARDS}) == len(DASHBOARDS)


async def test_a_running_gateway_tells_the_series_and_labels_that_are_declared(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        assert (await client.post(f"{gateway.url}/v1/chat/completions", json=body)).status_code == 200
        page = (await client.get(f"{gateway.url}/metrics")).text
    told = re.findall(r"^(\w+)(?:{(.*)})? \S+$", page, re.MULTILINE)
    live = {name: set(re.findall(r'(\w+)="', labels)) for name, labels in told if not name.endswith("_created")}
    assert {name for name in live if name not in series()} == set()
    assert {name for name, labels in live.items() if not labels <= series()[name]} == set()
    told_of = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in live}
    assert len(told_of & set(declared())) > 50
