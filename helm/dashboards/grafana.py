"""Dashboards as Grafana reads them: rows of panels, laid out from left to right, on whatever Prometheus one chooses.

    Dashboard --(rows)--> Row --(panels)--> Panel --(queries)--> Query        as written
        `--document()--> the JSON of Grafana's classic schema, version 39: Grafana 10 and later read it

Nothing in them is of one place: the data source and the namespace are variables. Where targets carry no label
`namespace`, "All" finds them all the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from helm.dashboards.promql import by, quantile, rate

Document = dict[str, object]
Kind = Literal["timeseries", "stat", "state-timeline"]

SCHEMA_VERSION: Final = 39
COLUMNS: Final = 24
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_GREEN: Final = "green"
_YELLOW: Final = "yellow"
_RED: Final = "red"
_BLUE: Final = "blue"


@dataclass(frozen=True, slots=True)
class Query:
    """One query; a legend names labels as `{{endpoint}}`."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` is one of Grafana's. `warn_at` and `bad_at` colour what is above, or below where `bad_at` is the less.

    `stacked` fills and adds up; `exemplars` shows traces where Prometheus has some.
    """

    title: str
    says: str
    queries: tuple[Query, ...]
    unit: str
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 7
    warn_at: float | None = None
    bad_at: float | None = None
    most: float | None = None
    stacked: bool = False
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """What its reader may choose. `query` lists values of a label; without one it is a text to type."""

    name: str
    label: str
    query: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page. `uid` stays the same for good: links and bookmarks have it."""

    uid: str
    title: str
    says: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = field(default=())


NAMESPACE: Final = Variable("namespace", "Namespace", "label_values(prefixgate_in_flight_requests, namespace)")


def stat(
    title: str, says: str, expr: str, unit: str, warn_at: float | None = None, bad_at: float | None = None
) -> Panel:
    """One number of now."""
    return Panel(title, says, (Query(expr),), unit, "stat", 4, 4, warn_at, bad_at)


def counted(title: str, says: str, metric: str, label: str, unit: str = "reqps", most: float | None = None) -> Panel:
    """A counter's rate, by a label."""
    return Panel(title, says, (Query(by(label, rate(metric)), f"{{{{{label}}}}}"),), unit, stacked=True, most=most)


def quantiles(metric: str) -> tuple[Query, ...]:
    """The usual three."""
    return tuple(Query(quantile(share, metric), f"p{share * 100:.0f}") for share in (0.5, 0.9, 0.99))


def document(dashboard: Dashboard) -> Document:
    """What Grafana reads."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.says,
        "tags": ["prefixgate"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [_link()],
        "annotations": {"list": []},
        "templating": {"list": [_datasource(), *map(_variable, (NAMESPACE, *dashboard.variables))]},
        "panels": list(_laid_out(dashboard.rows)),
    }


def _link() -> Document:
    return {
        "title": "prefixgate",
        "type": "dashboards",
        "tags": ["prefixgate"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "icon": "external link",
        "targetBlank": False,
        "tooltip": "",
        "url": "",
    }


def _datasource() -> Document:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "hide": 0,
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "options": [],
    }


def _variable(variable: Variable) -> Document:
    if not variable.query:
        chosen = {"text": variable.default, "value": variable.default}
        common = {"name": variable.name, "label": variable.label, "type": "textbox", "query": variable.default}
        return {**common, "hide": 0, "current": chosen, "options": [{**chosen, "selected": True}]}
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": variable.query, "refId": variable.name, "qryType": 1},
        "hide": 0,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[Document]:
    number, top = 0, 0
    for row in rows:
        number += 1
        at = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": at, "panels": []}
        top, left, tallest = top + 1, 0, 0
        for panel in row.panels:
            number += 1
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            at = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": at, **_panel(panel)}
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel) -> Document:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _DATASOURCE,
        "targets": [_target(panel, position, query) for position, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _target(panel: Panel, position: int, query: Query) -> Document:
    return {
        "refId": chr(ord("A") + position),
        "datasource": _DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "range": panel.kind != "stat",
        "instant": panel.kind == "stat",
        "exemplar": panel.exemplars,
    }


def _defaults(panel: Panel) -> Document:
    found: Document = {"unit": panel.unit, "noValue": "none", "thresholds": _thresholds(panel), "mappings": []}
    found["color"] = {"mode": "thresholds" if panel.kind in {"stat", "state-timeline"} else "palette-classic"}
    found["min"] = 0
    if panel.most is not None:
        found["max"] = panel.most
    if panel.kind == "timeseries":
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "off" if panel.bad_at is None else "dashed"},
        }
    return found


def _thresholds(panel: Panel) -> Document:
    steps: list[Document] = [{"color": _BLUE if panel.bad_at is None else _GREEN, "value": None}]
    warn_at, bad_at = panel.warn_at, panel.bad_at
    if bad_at is not None and warn_at is not None:
        if bad_at > warn_at:
            steps += [{"color": _YELLOW, "value": warn_at}, {"color": _RED, "value": bad_at}]
        else:
            steps = [
                {"color": _RED, "value": None},
                {"color": _YELLOW, "value": bad_at},
                {"color": _GREEN, "value": warn_at},
            ]
    elif bad_at is not None:
        steps.append({"color": _RED, "value": bad_at})
    return {"mode": "absolute", "steps": steps}


def _options(kind: Kind) -> Document:
    if kind == "stat":
        reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {
            "reduceOptions": reduced,
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "auto",
            "justifyMode": "auto",
        }
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    if kind == "state-timeline":
        return {
            "legend": legend,
            "showValue": "never",
            "mergeValues": True,
            "rowHeight": 0.9,
            "tooltip": {"mode": "single"},
        }
    return {"legend": {**legend, "calcs": []}, "tooltip": {"mode": "multi", "sort": "desc"}}
