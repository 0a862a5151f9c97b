"""What a split holds is given back once each, in whatever order its ends come."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from backends import EndpointFacts, EndpointId, EndpointSnapshot, PerfModel
from backends.disaggregated import Handed, Meeting, Role
from backends.disaggregated.bootstrap import BOOTSTRAP
from backends.disaggregated.nixl import NIXL
from backends.reservations import InFlightCounter, Reservation
from backends.types import InFlight
from billing import Usage
from gateway.disaggregation.legs import Calls
from gateway.receipts import Sent
from gateway.roles import Roles
from gateway.scheduling import Candidate, Decision, Demand, Filtered, SplitPart, SplitReason, SplitTerms
from gateway.seats import Seat
from gateway.split_metrics import SplitMetrics
from gateway.split_state import DecodeSide, Split
from gateway.transfers import Transfers
from gateway.types import Reason
from prefix_index import Chain

SPEED = PerfModel()
CHAIN = Chain(b"12345678", 16, 20)


class Host:
    """Counts what is reserved at two endpoints."""

    def __init__(self) -> None:
        self.counters = {"p": InFlightCounter(), "d": InFlightCounter()}
        self.freed: list[Split] = []

    def dispatch(self, endpoint_id: str, holder: str, chain: Chain, /) -> None: ...

    def freed_at(self, endpoint_id: str, chain: Chain, /) -> None: ...

    def publish_load(self, endpoint_id: EndpointId, place: str, /) -> None: ...

    def seat(self, name: str, tokens: int) -> Seat:
        return Seat(_AsHost(self), EndpointId(name), name, Reservation(self.counters[name], tokens, 1))

    @property
    def is_empty(self) -> bool:
        return all(counter.read() == InFlight() for counter in self.counters.values())


class _AsHost:
    def __init__(self, host: Host) -> None:
        self.dispatch = host.dispatch
        self.freed = host.freed_at
        self.publish_load = host.publish_load


def split_of(host: Host, **more: Any) -> Split:
    prefill, decode = Candidate("p", 0.0, 0, 0, SPEED), Candidate("d", 0.0, 0, 0, SPEED)
    demand = Demand(20, 5)
    fields: dict[str, Any] = {
        "part": SplitPart(prefill, SplitTerms(1, 1, 1, 1), 20, SplitReason.PAYS),
        "asked": Decision(prefill, Reason.NO_PREFIX, [prefill], {}, demand),
        "handover": NIXL,
        "meeting": Meeting(1, "h"),
        "sent": Sent("p", "p@1", CHAIN, 0.0),
        "seat": host.seat("p", 20),
        "decode": DecodeSide(decode, "0.32.0", 16),
        "decode_seat": host.seat("d", 0),
        "free": host.freed.append,
        "headers": (),
    }
    return Split(**{**fields, **more})


STEPS = ("handed", "fetched", "taken", "taken_released", "prefill_seat", "release", "end")


@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_however_a_request_ends_each_reservation_is_given_back_once_and_nothing_is_freed_that_was_fetched(
    steps: list[str],
) -> None:
    host = Host()
    split = split_of(host)
    taken: list[Seat] = []
    fetched = False
    for step in steps:
        match step:
            case "handed":
                split.handed = Handed(b"{}")
            case "fetched":
                split.decode_leg_begins()
                fetched = fetched or not host.freed
            case "taken":
                taken += filter(None, [split.take_decode_seat()])
            case "taken_released":
                for seat in taken:
                    seat.release()
            case "prefill_seat":
                split.seat.release()
            case "release":
                split.release()
            case "end":
                split.end()
    split.end()
    for seat in taken:
        seat.release()
    assert host.is_empty
    assert len(taken) <= 1
    assert len(host.freed) <= 1
    assert not (fetched and host.freed)


async def test_a_fault_in_one_call_is_its_own() -> None:
    async def breaks() -> tuple[int, bytes]:
        raise ValueError("a fault of ours")

    async def works() -> tuple[int, bytes]:
        return 200, b"{}"

    calls = Calls()
    async with asyncio.TaskGroup() as group:
        calls.open(group, lambda late: None)
        broken, whole = calls.begin(breaks()), calls.begin(works())
    assert isinstance(broken.result(), ValueError)
    assert whole.result() == (200, b"{}")


def test_what_a_family_frees_by_itself_is_not_freed_by_us() -> None:
    host = Host()
    split = split_of(host, handover=BOOTSTRAP, handed=Handed(b"{}"))
    split.end()
    assert host.freed == []


def test_the_prefill_legs_own_word_goes_before_what_the_params_say() -> None:
    host = Host()
    split = split_of(host, handed=Handed(b"{}", cached_tokens=7))
    assert split.cached_tokens == 7
    split.usage = Usage(20, 5, 1)
    assert split.cached_tokens == 5
    assert split.reports(20) == (7, 7)
    assert split_of(host).reports(20) is None


def snapshot(name: str) -> EndpointSnapshot:
    return EndpointSnapshot(EndpointId(name), True, 1)


def test_roles_are_told_apart_and_most_fleets_have_none() -> None:
    roles = Roles()
    roles.join("b", "both", "http://b:1", (None, None))
    assert not roles.are_split
    roles.join("p", "prefill", "http://10.0.0.1:8000/base", (None, 9000))
    roles.join("q", "prefill", "http://q:8000", ("inside", None))
    roles.join("d", "decode", "http://d:8000", (None, None))
    everyone = [snapshot(name) for name in "bpqd"]
    answering, others = roles.answering(everyone)
    assert [one.id for one in answering] == ["b", "d"]
    assert others == {"p": Filtered.PREFILLS, "q": Filtered.PREFILLS}
    assert [one.id for one in roles.prefilling(everyone)] == ["p", "q"]
    assert [(roles.place(name).host, roles.place(name).bootstrap_port) for name in "pq"] == [
        ("10.0.0.1", 9000),
        ("inside", None),
    ]
    assert [roles.of(name) for name in "bpd"] == [Role.BOTH, Role.PREFILL, Role.DECODE]
    roles.join("p", "both", "http://p:1", (None, None))
    roles.removed("q")
    assert dict(roles.as_json()) == {"d": "decode"}


@pytest.mark.parametrize(("engine", "alone"), [("vllm", True), ("trtllm", True), ("sglang", False), ("tgi", True)])
def test_some_decode_engines_cannot_answer_alone(engine: str, alone: bool) -> None:
    roles = Roles()
    roles.join("d", "decode", "http://d:8000", (None, None))
    assert roles.answers_alone("d", EndpointFacts(engine)) is alone
    assert roles.answers_alone("other", EndpointFacts(engine))
    assert roles.answers_alone("d", None)


def test_only_who_computes_prompts_is_warmed_and_only_where_its_engine_takes_them_alone() -> None:
    roles = Roles()
    roles.join("p", "prefill", "http://p:8000", (None, None))
    roles.join("d", "decode", "http://d:8000", (None, None))
    warmed = {
        (name, engine): roles.can_be_warmed(name, EndpointFacts(engine))
        for name in ("p", "d", "both")
        for engine in ("vllm", "sglang")
    }
    assert {at for at, can in warmed.items() if can} == {("p", "vllm"), ("both", "vllm"), ("both", "sglang")}


def test_the_time_of_a_transfer_is_learned_by_endpoint_and_forgotten_with_its_engine() -> None:
    prior = PerfModel(0.03, 40_000.0, quad_s_per_token2=0.0)
    transfers = Transfers(prior, SplitMetrics(CollectorRegistry()), lambda: 0.0)
    for _ in range(40):
        for tokens in (1_000, 4_000, 16_000):
            transfers.seen("d", 0.1 + tokens / 10_000, tokens)
    transfers.seen("d", 0.1, 0)
    assert transfers.of("d").prefill_s(8_000, 8_000) == pytest.approx(0.9, rel=0.1)
    assert transfers.of("other") is prior
    assert transfers.as_json()["d"]["samples"] == 120
    transfers.new_generation("d", 2)
    assert transfers.of("d") is prior
