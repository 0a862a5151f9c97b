"""Which rule a request falls under, what it does, and on which side of a comparison a request is."""

from typing import Any

import pytest

from gateway.config import ConfigInvalid, load_config
from gateway.fixes import Fix
from gateway.fixes.rules import Rule, arm_of, rule_of, rules_of
from gateway.types import Arm, Route
from tests.gateway.fixes.requests import request_of


def rules(*sections: dict[str, Any]) -> tuple[Rule, ...]:
    return rules_of(load_config(None, {}, {"fixes": list(sections)}).fixes)


def said(text: str, model: str = "llama-3") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def test_the_first_rule_that_fits_counts() -> None:
    found = rules(
        {"tenants": ["acme"], "models": ["test*", "x"]},
        {"tenants": ["acme"], "mode": "consented", "fixes": ["day"]},
        {"routes": ["/v1/messages"], "mode": "consented"},
        {"mode": "safe"},
    )

    def fixes(tenant: str, model: str = "llama-3", route: Route = Route.CHAT) -> tuple[Fix, ...] | None:
        body = said("x", model) | ({"max_tokens": 1} if route is Route.MESSAGES else {})
        rule = rule_of(found, request_of(body, tenant, route))
        return None if rule is None else rule.fixes

    assert fixes("acme") == (Fix.DAY,)
    assert fixes("acme", "testing") is fixes("acme", "x") is None
    assert fixes("beta", route=Route.MESSAGES) == (Fix.TOOLS, Fix.LINES)
    assert fixes("beta") == (Fix.COMPACT,)
    plain = request_of({"model": "m", "prompt": "x"}, route=Route.COMPLETIONS)
    assert rule_of(found, plain) is None


def test_a_mode_does_no_more_than_it_says() -> None:
    (shadow,) = rules({"mode": "shadow"})
    assert shadow.fixes == (Fix.TOOLS, Fix.LINES)
    assert rules({"mode": "safe", "fixes": ["tools", "lines", "day"]}) == ()
    assert rules({"mode": "off", "fixes": ["tools"]}) == rules({}) == rules() == ()


@pytest.mark.parametrize(
    "section", [{"mode": "on"}, {"fixes": ["schemas"]}, {"ab_share": 2}, {"most_lines": 0}, {"tenant": "x"}]
)
def test_a_rule_that_says_something_else_is_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match="fixes"):
        rules(section)


def test_a_job_and_a_conversation_stay_on_one_side_and_the_share_is_kept() -> None:
    turns = [{"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}]
    for number in range(50):
        first, later = said(f"Why {number}?"), said(f"Why {number}?")
        later["messages"] += turns
        assert arm_of(request_of(first), 0.5) is arm_of(request_of(later, number=2), 0.5)
        jobs = [request_of(said(f"{number} {turn}"), job=f"job {number}") for turn in range(3)]
        assert len({arm_of(one, 0.5) for one in jobs}) == 1
        marked = {"type": "text", "text": f"Why {number}?", "cache_control": {"type": "ephemeral"}}
        first["messages"] = [{"role": "user", "content": [marked]}]
        assert arm_of(request_of(first), 0.5) is arm_of(request_of(later, number=2), 0.5), "a mark moves with the turns"
    sides = [arm_of(request_of(said(f"Why {number}?")), 0.3) for number in range(1000)]
    assert 250 < sides.count(Arm.FIXED) < 350
    assert {arm_of(request_of(said("x")), share) for share in (0, 0.0)} == {Arm.LEFT}
    assert arm_of(request_of(said("x")), 1) is Arm.FIXED
    alone = [request_of({"model": "m", "messages": []}, number=number) for number in range(100)]
    assert {arm_of(one, 0.5) for one in alone} == {Arm.FIXED, Arm.LEFT}
