"""Pages of several workers as one; what changed, against a viewer that takes it in."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.ui import merging
from gateway.ui.merging import Rates

COUNTERS = (
    *("requests", "prompt_tokens", "reported_prompt_tokens", "cached_tokens", "output_tokens"),
    *("compared_prompt_tokens", "compared_reported_tokens", "compared_expected_tokens"),
)


def together(pages: list[dict[str, Any]], most_decisions: int) -> dict[str, Any]:
    return asyncio.run(merging.together(pages, most_decisions))


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    return asyncio.run(merging.difference(old, new))


def taken_in(view: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """What a viewer who had a view has after a change: docs/dashboard.md, as code."""
    endpoints = {name: dict(row) for name, row in view["endpoints"].items()}
    for name, fields in change.get("endpoints", {}).items():
        if fields is None:
            del endpoints[name]
        else:
            endpoints[name] = {**endpoints.get(name, {}), **fields}
    decisions = {row["request_id"]: row for row in view["decisions"]}
    decisions |= {row["request_id"]: row for row in change.get("decisions", ())}
    return {
        "live": {**view["live"], **change.get("live", {})},
        "endpoints": endpoints,
        "decisions": decisions,
        "health": change.get("health", view["health"]),
    }


values = st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2)
rows = st.fixed_dictionaries({"a": values, "b": values})
decision_rows = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([None, "complete"]), max_size=3)


@st.composite
def views(draw: st.DrawFn) -> dict[str, Any]:
    decided = draw(decision_rows)
    return {
        "live": draw(rows),
        "endpoints": draw(st.dictionaries(st.sampled_from("efg"), rows, max_size=3)),
        "decisions": [{"request_id": name, "state": state} for name, state in decided.items()],
        "health": draw(values),
    }


@given(views(), views())
def test_who_takes_in_what_changed_has_the_new_view(old: dict[str, Any], new: dict[str, Any]) -> None:
    change = difference(old, new)
    had = taken_in(old, {})
    has = had if change is None else taken_in(old, change)
    assert {name: has[name] for name in ("live", "endpoints", "health")} == {
        name: new[name] for name in ("live", "endpoints", "health")
    }
    assert has["decisions"] == had["decisions"] | {row["request_id"]: row for row in new["decisions"]}


@given(views())
def test_nothing_is_sent_where_nothing_changed(view: dict[str, Any]) -> None:
    assert difference(view, view) is None


def page(**changed: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "state": "up",
        "why": None,
        "since": "1",
        "breaker_opened": 0,
        "healthy": True,
        "draining": False,
    }
    row |= {"in_flight_requests": 1, "in_flight_uncached_tokens": 10, "speed": None, "kv_use": 0.5}
    return {
        "worker": "one",
        "counters": dict.fromkeys(COUNTERS, 5.0),
        "in_flight": 2,
        "queued": None,
        "viewers": 1,
        "draining": False,
        "endpoints": {"e0": row | changed},
        "decisions": [],
        "degraded": {},
    }


def test_an_endpoint_is_as_the_worker_says_that_finds_something_wrong_with_it() -> None:
    whole = together([page(), page(state="open", why="three faults", healthy=False, kv_use=0.9)], 10)
    row = whole["endpoints"]["e0"]
    assert (row["state"], row["why"], row["healthy"]) == ("open", "three faults", False)
    assert (row["in_flight_requests"], row["in_flight_uncached_tokens"], row["kv_use"]) == (2, 20, 0.5)


def test_counts_are_added_and_unknown_ones_stay_unknown() -> None:
    whole = together([page(), page() | {"worker": "other"}], 10)
    assert (whole["in_flight"], whole["viewers"], whole["queued"]) == (4, 2, None)
    assert {name: counters["requests"] for name, counters in whole["counters"].items()} == {"one": 5, "other": 5}
    assert together([page() | {"queued": 3}, page() | {"queued": 4}], 10)["queued"] == 7


def test_the_speed_is_that_of_who_has_measured_the_most() -> None:
    fast, slow = {"samples": 3, "itl_s": 1}, {"samples": 9, "itl_s": 2}
    assert together([page(speed=fast), page(speed=slow), page()], 10)["endpoints"]["e0"]["speed"] == slow


def test_the_latest_decisions_of_all_are_shown() -> None:
    decided = [[{"request_id": f"{who}{at}", "opened_at": f"0{at}"} for at in range(5)] for who in "ab"]
    whole = together([page() | {"decisions": rows} for rows in decided], 3)
    assert [row["request_id"] for row in whole["decisions"]] == ["b4", "a4", "b3"]


def counted(**of: float) -> dict[str, dict[str, float]]:
    """The counters of workers that all stand at one value."""
    return {worker: dict.fromkeys(COUNTERS, value) for worker, value in of.items()}


def test_rates_are_unknown_until_there_are_two_samples() -> None:
    rates = Rates()
    rates.add(0.0, counted(one=100.0))
    assert set(rates.as_page().values()) == {None}


def test_rates_are_those_of_the_last_minute() -> None:
    rates = Rates()
    for second in range(200):
        rates.add(float(second), counted(one=second * 2.0 if second < 100 else 200.0 + (second - 100) * 3))
    found = rates.as_page()
    assert (found["requests_per_s"], found["window_s"], found["hit_share"]) == (3.0, 60.0, 1.0)


def test_rates_go_on_where_a_worker_was_replaced_or_an_endpoint_left() -> None:
    rates = Rates()
    for second, counters in enumerate(
        (counted(a=900.0, b=10.0), counted(a=905.0, b=15.0), counted(b=20.0, c=2.0), counted(b=3.0, c=7.0))
    ):
        rates.add(float(second), counters)
    assert rates.as_page()["requests_per_s"] == (5 + 5 + 5 + 5) / 3


def test_a_worker_that_was_silent_for_a_while_brings_no_burst_of_all_that_it_ever_counted() -> None:
    rates = Rates()
    for second, counters in enumerate((counted(a=10**9, b=10.0), counted(b=20.0), counted(a=10**9 + 30, b=30.0))):
        rates.add(float(second), counters)
    assert rates.as_page()["requests_per_s"] == (10 + 10 + 30) / 2
    for second in range(3, 200):
        rates.add(float(second), counted(b=30.0))
    rates.add(200.0, counted(a=10**10, b=30.0))
    assert rates.as_page()["requests_per_s"] == 0.0


def test_where_no_engine_says_what_was_cached_the_rate_is_unknown() -> None:
    rates = Rates()
    silent = counted(one=0.0)
    rates.add(0.0, silent)
    assert rates.as_page()["cached_tokens_per_s"] is None
    rates.add(1.0, silent)
    assert rates.as_page()["cached_tokens_per_s"] == 0.0
    rates.add(2.0, {"one": silent["one"] | {"requests": 1.0, "prompt_tokens": 100.0}})
    assert (rates.as_page()["prompt_tokens_per_s"], rates.as_page()["cached_tokens_per_s"]) == (50.0, None)


async def test_a_very_large_fleet_is_put_together_and_compared_in_turns() -> None:
    turns, rows = 0, {f"e{number}": page()["endpoints"]["e0"] for number in range(3000)}

    async def others_go_on() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    changed = {name: {**row, "kv_use": 0.6} for name, row in rows.items()}
    views: list[dict[str, Any]] = [
        {"live": {}, "health": None, "decisions": [], "endpoints": one} for one in (rows, changed)
    ]
    async with asyncio.TaskGroup() as group:
        going_on = group.create_task(others_go_on())
        await merging.together([page() | {"endpoints": rows}] * 2, 10)
        after_merging = turns
        found = await merging.difference(*views)
        going_on.cancel()
    assert found == {"endpoints": {name: {"kv_use": 0.6} for name in rows}}
    assert 0 < after_merging < turns
