"""Who is spared of a decision's candidates: the half open, the stalled, the ejected; and that nobody goes without."""

import pytest

from backends import BreakerRules, EndpointConfig, EndpointId, EndpointState, Member, PerfModel, PollSettings, Registry
from gateway.restraint import thinned
from gateway.scheduling import Candidate, Filtered
from gateway.types import Routed, Trouble

A, B = EndpointId("a"), EndpointId("b")


class Fleet:
    """Two endpoints that are up."""

    def __init__(self) -> None:
        configs = [EndpointConfig(name, "http://127.0.0.1:9") for name in (A, B)]
        settings = PollSettings(breaker=BreakerRules(failures=1, open_s=1.0))
        self.now_s = 0.0
        self.registry = Registry(configs, lambda: self.now_s, settings=settings)
        for name in (A, B):
            self.member(name).reason = None

    def member(self, name: EndpointId) -> Member:
        found = self.registry.member(name)
        assert found is not None
        return found

    def half_open(self, name: EndpointId, fault: str = "no_first_byte") -> None:
        self.registry.report_fault(name, fault)
        self.now_s += 1
        self.member(name).look()

    def chosen_from(self, *names: str, routed: Routed | None = None) -> tuple[list[str], dict[str, Filtered]]:
        filtered: dict[str, Filtered] = {}
        able = [Candidate(name, 0, 0, 0, PerfModel()) for name in names]
        return [one.endpoint_id for one in thinned(self.registry.restrained, able, filtered, routed)], filtered


@pytest.fixture
async def fleet() -> Fleet:
    return Fleet()


async def test_while_all_are_well_all_may_be_chosen(fleet: Fleet) -> None:
    assert fleet.chosen_from("a", "b") == (["a", "b"], {})


@pytest.mark.parametrize(
    ("state", "why"), [(EndpointState.STALLED, Filtered.STALLED), (EndpointState.EJECTED, Filtered.EJECTED)]
)
async def test_who_is_set_aside_gets_only_what_nobody_else_can_take(
    fleet: Fleet, state: EndpointState, why: Filtered
) -> None:
    fleet.registry.set_aside(A, state, "so it is")
    assert fleet.chosen_from("a", "b") == (["b"], {"a": why})
    assert fleet.chosen_from("a") == (["a"], {})
    fleet.registry.set_aside(B, state, "so it is")
    assert fleet.chosen_from("a", "b") == (["a", "b"], {})
    fleet.registry.take_back(A, state)
    assert fleet.chosen_from("a", "b") == (["a"], {"b": why})


async def test_all_ranks_of_an_endpoint_share_its_lot(fleet: Fleet) -> None:
    fleet.registry.set_aside(A, EndpointState.STALLED, "so it is")
    assert fleet.chosen_from("a", "a", "b") == (["b"], {"a": Filtered.STALLED})
    assert fleet.chosen_from("a", "a") == (["a", "a"], {})


async def test_half_open_an_endpoint_gets_its_probes_and_more_only_where_nobody_else_is(fleet: Fleet) -> None:
    """A probe may be a long answer that is no stream: minutes in which the only endpoint must not be out of reach."""
    fleet.half_open(A)
    assert fleet.chosen_from("a", "b") == (["a", "b"], {})
    gives_back = fleet.registry.probe(A)
    assert gives_back is not None
    assert fleet.chosen_from("a", "b") == (["b"], {"a": Filtered.PROBING})
    assert fleet.chosen_from("a") == (["a"], {})
    gives_back()
    assert fleet.chosen_from("a", "b") == (["a", "b"], {})


async def test_who_is_open_for_silence_gets_nothing(fleet: Fleet) -> None:
    """Who is sent there waits for nothing."""
    fleet.registry.report_fault(A, "left_unanswered")
    assert fleet.chosen_from("a") == ([], {"a": Filtered.UNHEALTHY})


async def test_on_mere_suspicion_it_gets_more_where_nobody_else_is(fleet: Fleet) -> None:
    fleet.registry.set_aside(A, EndpointState.STALLED, "so it is")
    fleet.registry.take_back(A, EndpointState.STALLED, "was stalled")
    fleet.registry.probe(A)
    assert fleet.chosen_from("a", "b") == (["b"], {"a": Filtered.PROBING})
    assert fleet.chosen_from("a") == (["a"], {})


async def test_who_fails_calls_and_answers_polls_gets_what_nobody_else_can_take(fleet: Fleet) -> None:
    """Open, and half open: an engine that is overloaded is not made unavailable by us."""
    fleet.registry.report_fault(A, "timeout")
    assert fleet.chosen_from("a", "b") == (["b"], {"a": Filtered.UNHEALTHY})
    assert fleet.chosen_from("a") == (["a"], {})
    fleet.registry.set_aside(B, EndpointState.EJECTED, "so it is")
    assert fleet.chosen_from("a", "b") == (["b"], {"a": Filtered.UNHEALTHY})
    fleet.registry.report_fault(B, "timeout")
    assert fleet.chosen_from("a", "b") == (["a", "b"], {})
    fleet.now_s += 1
    fleet.member(A).look()
    fleet.registry.probe(A)
    assert fleet.chosen_from("a") == (["a"], {})


async def test_unless_another_model_answers_then(fleet: Fleet) -> None:
    fleet.registry.report_fault(A, "timeout")
    routed = Routed("m", falls_back_on=frozenset({Trouble.UNAVAILABLE}))
    assert fleet.chosen_from("a", routed=routed) == ([], {"a": Filtered.UNHEALTHY})
    assert fleet.chosen_from("a", routed=Routed("m")) == (["a"], {})
