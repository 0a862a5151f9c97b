"""The dashboards on a real Prometheus, which scrapes a gateway at work: `make grafana-test`.

Its name keeps it out of the suite, which has no Prometheus.
"""

import math
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.monitoring.fleet import running_fleet
from tests.monitoring.prometheus import NAMESPACE, program, rules
from tests.monitoring.test_dashboards import queries, query_of

WITHIN_S = 150.0
WINDOW = "30s"
NEEDS_MORE = {
    "Feeds": "an engine that publishes KV events",
    "Age of KV events": "the same",
    "Blocks followed": "the same",
    "Restarts inferred": "an engine that restarts without its counters telling so",
}
"""Panels of what these simulated engines do not do: their queries are asked, and may find nothing."""


class Prometheus:
    """One that runs."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def get(self, path: str, **params: str) -> Any:
        answer = self._http.get(f"/api/v1/{path}", params=params).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[float]:
        """What a query finds now, less what is no number."""
        found = [float(one["value"][1]) for one in self.get("query", query=query)["result"]]
        return [value for value in found if not math.isnan(value)]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with the chart's rules, behind a gateway that is busy."""
    folder = tmp_path_factory.mktemp("fleet")
    with running_fleet(folder) as fleet, fleet.busy():
        target = {"targets": [fleet.url.removeprefix("http://")], "labels": {"namespace": NAMESPACE, "pod": "gate-0"}}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "prefixgate", "static_configs": [target]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules()))
        with socket.create_server(("127.0.0.1", 0)) as free:
            at = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            str(program("prometheus")),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={at}",
            "--enable-feature=exemplar-storage",
        ]
        with (folder / "prometheus.log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                with httpx.Client(base_url=f"http://{at}", timeout=30) as http:
                    soon(lambda: http.get("/-/ready").status_code == 200)
                    yield Prometheus(http)
            finally:
                process.terminate()


def soon(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        try:
            if holds():
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError("it did not come about")


def without_value(prometheus: Prometheus, waiting: dict[str, str]) -> list[str]:
    """The names of queries that have found nothing by the time all should have."""
    end_s = time.monotonic() + WITHIN_S
    while waiting and time.monotonic() < end_s:
        waiting = {what: query for what, query in waiting.items() if not prometheus.values(query)}
        time.sleep(1)
    return list(waiting)


def test_every_panel_shows_something(prometheus: Prometheus) -> None:
    waiting = {
        f"{name}: {panel['title']}: {target['expr']}": query_of(target["expr"], window=WINDOW)
        for name, panel, target in queries()
        if panel["title"] not in NEEDS_MORE
    }
    assert len(waiting) > 90
    never = without_value(prometheus, waiting)
    assert not never, "\n".join(never)


def test_queries_of_what_is_not_here_are_understood(prometheus: Prometheus) -> None:
    for _, panel, target in queries():
        if panel["title"] in NEEDS_MORE:
            prometheus.get("query", query=query_of(target["expr"], window=WINDOW))


def test_shares_are_between_none_and_all(prometheus: Prometheus) -> None:
    for _, panel, target in queries():
        if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
            values = prometheus.values(query_of(target["expr"], window=WINDOW))
            assert all(0 <= value <= 1.2 for value in values), (panel["title"], values)


def test_every_rule_is_evaluated(prometheus: Prometheus) -> None:
    def evaluated() -> bool:
        found = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert len(found) == sum(len(group["rules"]) for group in rules()["groups"])
        assert not [rule["lastError"] for rule in found if rule["health"] == "err"]
        return all(rule["health"] == "ok" for rule in found)

    soon(evaluated)
    names = [rule["record"] for rule in rules()["groups"][1]["rules"]]
    assert without_value(prometheus, dict(zip(names, names, strict=True))) == []


def test_buckets_lead_to_traces(prometheus: Prometheus) -> None:
    def traces() -> bool:
        names = ("time_to_first_token", "request_duration", "decision", "decision_regret")
        now_s = time.time()
        for name in names:
            query = f"prefixgate_{name}_seconds_bucket"
            found = prometheus.get("query_exemplars", query=query, start=str(now_s - 600), end=str(now_s + 5))
            if not any("trace_id" in one["labels"] for series in found for one in series["exemplars"]):
                return False
        return True

    soon(traces)


def test_the_scrape_is_taken_as_it_is(prometheus: Prometheus) -> None:
    (target,) = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
