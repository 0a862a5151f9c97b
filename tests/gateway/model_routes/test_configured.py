"""What the configuration of names refuses, and what it means."""

import pytest

from gateway.config import ConfigInvalid, load_config
from gateway.model_routes import Arm, ModelRoute, Sticky, routes_from, routes_page
from gateway.types import Trouble


def read(*routes: dict[str, object]) -> tuple[ModelRoute, ...]:
    return routes_from(load_config(None, {}, {"model_routes": list(routes)}).model_routes)


def test_an_alias_a_split_and_a_fallback_are_read() -> None:
    alias, split, fallback = read(
        {"name": "gpt-4o", "model": "llama"},
        {
            "name": "fast",
            "arms": [
                {"model": "meta/llama 8".replace(" ", "-"), "weight": 9},
                {"model": "n", "name": "new", "endpoints": ["e1"]},
            ],
            "sticky": "tenant",
            "canary": {"arm": "new"},
        },
        {"name": "llama", "fallbacks": ["n"], "fall_back_on": ["full"]},
    )
    assert alias.arms == (Arm("llama", "llama", 1),)
    assert split.arms == (Arm("meta-llama-8", "meta/llama-8", 9), Arm("new", "n", 1, frozenset({"e1"})))
    assert split.sticky is Sticky.TENANT
    assert split.guard is not None
    assert (split.guard.arm, split.guard.most_ttft) == ("new", 2.0)
    assert (fallback.arms[0].model, fallback.fall_back_on) == ("llama", frozenset({Trouble.FULL}))


def test_an_alias_has_the_fallbacks_of_its_model_unless_it_says_its_own() -> None:
    routes = read(
        {"name": "alias", "model": "llama"},
        {"name": "none", "model": "llama", "fallbacks": []},
        {"name": "own", "model": "llama", "fallbacks": ["o"]},
        {"name": "reasons", "model": "llama", "fall_back_on": ["slow"]},
        {"name": "versions", "arms": [{"model": "llama", "name": "a"}, {"model": "llama", "name": "b"}]},
        {"name": "split", "arms": [{"model": "llama"}, {"model": "n"}]},
        {"name": "llama", "fallbacks": ["n"], "fall_back_on": ["full"]},
        {"name": "another", "model": "elsewhere", "fallbacks": ["n"]},
        {"name": "no-chain", "model": "another"},
    )
    found = {route.name: (route.fallbacks, route.fall_back_on) for route in routes}
    full, any_reason = frozenset({Trouble.FULL}), frozenset(Trouble)
    assert found["alias"] == found["versions"] == found["llama"] == (("n",), full)
    assert found["none"] == found["split"] == found["no-chain"] == ((), any_reason)
    assert found["own"] == (("o",), any_reason)
    assert found["reasons"] == (("n",), frozenset({Trouble.SLOW}))


ONE, TWO = {"model": "m", "name": "a"}, {"model": "m", "name": "b"}


@pytest.mark.parametrize(
    ("routes", "complaint"),
    [
        ([{"name": "a", "model": "m"}, {"name": "a", "model": "n"}], "model_routes: a is there twice"),
        ([{"name": "a", "model": "m", "arms": [ONE]}], "a: give a model, or arms"),
        ([{"name": "a", "arms": [ONE, ONE]}], "arms of a: a is there twice"),
        ([{"name": "a", "arms": [{**ONE, "weight": 0}]}], "a: no arm has a weight"),
        ([{"name": "a", "fallbacks": ["m", "m"]}], "fallbacks of a: m is there twice"),
        ([{"name": "a", "arms": [ONE, TWO], "canary": {"arm": "c"}}], "a: there is no arm c"),
        ([{"name": "a", "arms": [ONE, {**TWO, "weight": 0}], "canary": {"arm": "a"}}], "there must be one to compare"),
        ([{"name": "a b"}], "model_routes.0.name"),
        ([{"name": "a", "fall_back_on": ["never"]}], "fall_back_on"),
    ],
)
def test_what_is_unclear_is_refused_with_the_name_of_the_route(routes: list[dict[str, object]], complaint: str) -> None:
    with pytest.raises(ConfigInvalid, match=complaint.replace("(", r"\(")):
        read(*routes)


def test_the_pages_of_several_workers_are_added_up() -> None:
    def page(requests: int, ttft_s: float | None, why: str | None) -> list[dict[str, object]]:
        side = {"requests": requests, "failed": 1, "median_ttft_s": ttft_s}
        arms = [{"arm": "a", "stopped": None}, {"arm": "b", "stopped": why}]
        split: dict[str, object] = {"name": "fast", "arms": arms, "requests": {"split:a": requests}}
        split["canary"] = {"arm": "b", "watched": side, "others": side}
        return [split, {"name": "x", "arms": [], "requests": {"alias": 1}, "canary": None}]

    fast, alias = routes_page([page(30, 0.1, None), page(10, 0.5, "errors"), page(5, None, None)])
    assert (fast["requests"], alias["requests"]) == ({"split:a": 45}, {"alias": 3})
    assert [arm["stopped"] for arm in fast["arms"]] == [None, "errors"]
    assert fast["canary"]["watched"] == {"requests": 45, "failed": 3, "median_ttft_s": pytest.approx(0.2)}
    assert alias["canary"] is None


def test_while_a_changed_configuration_is_taken_over_each_name_is_of_the_workers_that_have_it() -> None:
    def row(name: str, *arms: str, stopped: str | None = None, canary: str | None = None) -> dict[str, object]:
        shown = [{"arm": arm, "stopped": "errors" if arm == stopped else None} for arm in arms]
        side = {"requests": 1, "failed": 0, "median_ttft_s": None}
        watched = None if canary is None else {"arm": canary, "watched": side, "others": side}
        return {"name": name, "arms": shown, "requests": {"alias": 1}, "canary": watched}

    before = [row("gone", "m"), row("fast", "a", "b", stopped="b", canary="b")]
    after = [row("fast", "c", "b", "a", canary="c"), row("new", "n")]
    for pages, names in (([before, after], ["gone", "fast", "new"]), ([after, before], ["fast", "new", "gone"])):
        found = {page["name"]: page for page in routes_page(pages)}
        assert list(found) == names
        assert found["fast"]["requests"] == {"alias": 2}
        assert [arm["arm"] for arm in found["fast"]["arms"] if arm["stopped"]] == ["b"]
        assert found["fast"]["canary"]["watched"]["requests"] == 1
