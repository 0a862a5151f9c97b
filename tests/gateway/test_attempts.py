"""Attempts under way and the silence of their endpoints, under a clock of their own: when an endpoint is left, when it
is suspected, and that a merely long prefill is neither."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from backends import EndpointState, FirstByteTimeout, LoadSample
from gateway.attempts import UnderWay
from gateway.health_config import Health
from tests.gateway.silent_world import EXPECTED_S, STILL, TOKENS, A, Answer, World, world_of


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with asyncio.timeout(10), world_of(Health()) as made:
        yield made


async def test_a_silent_endpoint_is_left_after_a_multiple_of_what_the_fit_says(world: World) -> None:
    attempt = world.send(TOKENS + 2000)  # 4 s, ten times
    world.pass_time(39)
    assert attempt.silent_s == 0
    world.pass_time(1)
    assert attempt.silent_s == 40


async def test_the_whole_prompt_counts_as_if_nothing_were_cached_and_so_does_the_queue_before_it(world: World) -> None:
    attempt = world.send(100, queued=9_800)
    world.pass_time(99)
    assert attempt.silent_s == 0
    world.pass_time(1)
    assert attempt.silent_s == 100


async def test_never_before_the_configured_least_and_never_after_the_configured_longest(world: World) -> None:
    short, long = world.send(10), world.send(100_000)
    world.pass_time(29)
    assert short.silent_s == 0
    world.pass_time(1)
    assert short.silent_s == 30
    world.pass_time(569)
    assert long.silent_s == 0
    world.pass_time(1)
    assert long.silent_s == 600


async def waits(attempt: UnderWay) -> str:
    """As whoever sends it does."""
    try:
        await attempt.unless_silent(asyncio.Event().wait())
    except FirstByteTimeout:
        return "given up"
    return "answered"


async def test_who_waits_is_told_and_its_task_goes_on(world: World) -> None:
    attempt = world.send(10)
    task = asyncio.ensure_future(waits(attempt))
    await asyncio.sleep(0)
    world.pass_time(40)
    assert await task == "given up"
    assert (task.cancelling(), attempt.silent_s) == (0, 30)


@pytest.mark.parametrize("given_up_first", [True, False])
async def test_a_client_that_leaves_in_that_very_moment_has_left(world: World, given_up_first: bool) -> None:
    attempt = world.send(10)
    task = asyncio.ensure_future(waits(attempt))
    await asyncio.sleep(0)
    if given_up_first:
        world.pass_time(30)
    task.cancel()
    world.pass_time(30)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_where_nobody_else_could_take_it_nobody_is_left(world: World) -> None:
    attempt = world.send(10, may_leave=False)
    world.pass_time(599)
    assert attempt.silent_s == 0


async def test_where_the_speed_is_not_known_nobody_is_left(world: World) -> None:
    world.speed = None
    attempt = world.send(10)
    world.pass_time(599)
    assert attempt.silent_s == 0
    assert world.state() is EndpointState.UP


async def test_with_factor_0_nothing_is_learned() -> None:
    async with world_of(Health(first_byte_factor=0)) as world:
        attempt = world.send(10)
        world.pass_time(599)
        assert attempt.silent_s == 0


async def test_tokens_of_another_answer_are_a_sign_of_life(world: World) -> None:
    answer = Answer()
    world.send(10, answer=answer)
    world.attempts.answers(next(iter(next(iter(world.attempts._places.values())).under_way)), 200)
    attempt = world.send(10)
    for _ in range(200):
        answer.last_token_s = world.clock.now_s
        world.pass_time(1)
    assert (attempt.silent_s, world.state()) == (0, EndpointState.UP)
    world.pass_time(31)
    assert attempt.silent_s > 0


async def test_first_bytes_of_others_are_a_sign_of_life_and_errors_are_none(world: World) -> None:
    attempt = world.send(10)
    for _ in range(20):
        other = world.send(10)
        world.pass_time(5)
        world.attempts.answers(other, 200)
        other.end()
    assert attempt.silent_s == 0
    for _ in range(7):
        other = world.send(10)
        world.pass_time(5)
        world.attempts.answers(other, 400)  # the process that refuses is not the one that computes
        other.end()
    assert attempt.silent_s > 0


async def test_a_metrics_page_that_moves_is_a_sign_of_life(world: World) -> None:
    attempt = world.send(10)
    for step in range(300):
        world.pass_time(1, page=LoadSample(0.0, running=1, waiting=5, steps=float(step)))
    assert (attempt.silent_s, world.state()) == (0, EndpointState.UP)


async def test_an_answer_that_is_no_stream_has_its_tokens_to_give_first(world: World) -> None:
    attempt = world.send(10, streams=False, answer_tokens=5000)  # 30 s, and twice 50 s
    world.pass_time(129)
    assert attempt.silent_s == 0
    world.pass_time(1)
    assert attempt.silent_s == 130


async def test_unless_the_page_says_that_none_are_given(world: World) -> None:
    attempt = world.send(10, streams=False, answer_tokens=5000)
    world.pass_time(40, page=STILL)
    assert attempt.silent_s > 0


async def test_new_requests_go_elsewhere_before_those_that_wait_do(world: World) -> None:
    attempt = world.send(10)
    world.pass_time(19)
    assert world.state() is EndpointState.UP
    world.pass_time(1)
    assert (world.state(), attempt.silent_s) == (EndpointState.STALLED, 0)
    assert world.why == "1 without a first byte, and nobody there got any for 20 s"
    assert list(world.registry.restrained) == [A]


async def test_a_first_byte_takes_it_back_at_once(world: World) -> None:
    attempt = world.send(10)
    world.pass_time(21)
    world.clock.now_s += 0.5
    world.attempts.answers(attempt, 200)
    world.pass_time(1)
    assert (world.state(), world.registry.restrained) == (EndpointState.UP, {})


async def test_a_page_that_stands_still_while_requests_wait_is_a_stall_whoever_sent_them(world: World) -> None:
    world.page(STILL)
    world.pass_time(19, page=STILL)
    assert world.state() is EndpointState.UP
    world.pass_time(2, page=STILL)
    assert world.state() is EndpointState.STALLED
    assert world.why.startswith("requests wait, and no counter of its metrics page has moved for")
    moved = LoadSample(0.0, running=8, waiting=3, steps=71.0)
    world.pass_time(1, page=moved)
    assert world.state() is EndpointState.UP


async def test_a_long_prompt_of_ours_explains_why_a_page_stands_still(world: World) -> None:
    world.send(20_000)  # 20 s, ten times
    world.pass_time(199, page=STILL)
    assert world.state() is EndpointState.UP
    world.pass_time(5, page=STILL)
    assert world.state() is EndpointState.STALLED


async def test_at_an_endpoint_of_unknown_speed_a_page_may_stand_still_for_longer(world: World) -> None:
    world.speed = None
    world.page(STILL)
    world.pass_time(79, page=STILL)
    assert world.state() is EndpointState.UP
    world.pass_time(2, page=STILL)
    assert world.state() is EndpointState.STALLED


async def test_a_stalled_endpoint_that_stays_silent_is_tried_again_each_time_later(world: World) -> None:
    world.page(STILL)
    tried_s, before = list[float](), EndpointState.UP
    for _ in range(200):
        world.pass_time(1, page=STILL)
        if before is EndpointState.STALLED and world.state() is EndpointState.HALF_OPEN:
            tried_s.append(world.clock.now_s - 1000.0)
        before = world.state()
    waits = [later - earlier for earlier, later in pairwise(tried_s)]
    assert len(waits) >= 3
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]


async def test_it_is_tried_by_few_at_a_time_and_the_first_that_is_answered_ends_that(world: World) -> None:
    world.page(STILL)
    world.pass_time(27, page=STILL)
    assert world.state() is EndpointState.HALF_OPEN
    probe = world.send(10)
    assert not world.registry.restrained[A].breaker.has_place
    probe.end()
    assert world.registry.restrained[A].breaker.has_place
    probe = world.send(10)
    world.attempts.answers(probe, 200)
    assert world.state() is EndpointState.UP


async def test_with_stall_s_0_nobody_is_stalled() -> None:
    async with world_of(Health(stall_s=0)) as world:
        world.page(STILL)
        world.send(10)
        world.pass_time(100, page=STILL)
        assert world.state() is EndpointState.UP


def leave(world: World, after_s: float, times: int = 1) -> None:
    for _ in range(times):
        attempt = world.send(100)  # 0.2 s: after 5 s a client has had patience
        world.clock.now_s += after_s
        world.attempts.left(attempt)
        attempt.end()


async def test_clients_that_leave_where_nobody_gets_a_first_byte_count_against_the_endpoint(world: World) -> None:
    leave(world, 5.0, times=2)
    assert world.state() is EndpointState.UP
    leave(world, 5.0)
    assert (world.state(), world.why) == (EndpointState.OPEN, "left unanswered, 3 times in a row")


async def test_a_thousand_clients_without_patience_do_not(world: World) -> None:
    leave(world, 4.9, times=1000)
    assert world.state() is EndpointState.UP


async def test_nor_do_those_whose_prompts_were_long(world: World) -> None:
    for _ in range(1000):
        attempt = world.send(TOKENS)
        world.clock.now_s += 19
        world.attempts.left(attempt)
        attempt.end()
    assert world.state() is EndpointState.UP


async def test_nor_do_a_thousand_that_leave_where_others_are_served(world: World) -> None:
    for _ in range(1000):
        attempt, other = world.send(100), world.send(100)
        world.clock.now_s += 30
        world.attempts.answers(other, 200)
        other.end()
        world.attempts.left(attempt)
        attempt.end()
    assert world.state() is EndpointState.UP


async def test_nor_do_those_that_leave_inside_their_answers(world: World) -> None:
    for _ in range(1000):
        attempt = world.send(100)
        world.attempts.answers(attempt, 200)
        world.clock.now_s += 60
        world.attempts.left(attempt)
        attempt.end()
    assert world.state() is EndpointState.UP


async def test_5xx_are_an_endpoints_fault_only_where_another_one_did_better(world: World) -> None:
    for status in (400, 500):
        for _ in range(5):
            attempt = world.send(10)
            world.attempts.answers(attempt, status, [(A, world.clock.now_s)])
            attempt.end()
        assert world.state() is EndpointState.UP
    for _ in range(3):
        attempt = world.send(10)
        world.attempts.answers(attempt, 200, [(A, world.clock.now_s)])
        attempt.end()
    assert (world.state(), world.why) == (EndpointState.OPEN, "status 5xx, 3 times in a row")


async def test_another_engine_at_its_place_begins_anew(world: World) -> None:
    world.send(10)
    world.pass_time(21)
    member = world.registry.member(A)
    assert member is not None
    member.is_another()
    member.touch()
    world.attempts.new_generation(A, 2)
    world.pass_time(19)
    assert world.state() is EndpointState.UP


async def test_whatever_becomes_of_attempts_nothing_is_left_behind(world: World) -> None:
    under_way = [world.send(10) for _ in range(10)]
    world.attempts.answers(under_way[0], 200)
    for attempt in under_way * 2:
        attempt.end()
    [place] = world.attempts._places.values()
    assert (place.under_way, place.waiting) == (set(), 0)
    world.attempts.removed(A)
    assert world.attempts._places == {}


async def test_a_gateway_that_stood_still_holds_nobodys_silence_against_them(world: World) -> None:
    """It was stopped, or its machine slept: what engines and clients sent meanwhile was not read yet."""
    attempts = [world.send(10) for _ in range(4)]
    world.pass_time(2)
    world.clock.now_s += 300
    for attempt in attempts[:3]:
        world.attempts.left(attempt)
        attempt.end()
    world.pass_time(19)
    assert (world.state(), attempts[3].silent_s) == (EndpointState.UP, 0)
    world.pass_time(15)
    assert attempts[3].silent_s > 0


async def test_an_endpoint_that_does_not_answer_polls_either_is_left_sooner_but_not_within_what_is_expected(
    world: World,
) -> None:
    """Frozen as a whole, or cut off: not even its health check is answered."""
    short, long = world.send(10), world.send(TOKENS)
    member = world.registry.member(A)
    assert member is not None
    member.goes_down("no answer within 5 s")
    world.pass_time(9)
    assert short.silent_s == 0
    world.pass_time(1)
    assert short.silent_s == 10
    world.pass_time(9)
    assert long.silent_s == 0
    world.pass_time(2)
    assert long.silent_s >= 10 * EXPECTED_S


async def test_an_endpoint_that_is_down_is_left_though_its_speed_is_not_known(world: World) -> None:
    """Frozen before a gateway that has just started has seen an answer."""
    world.speed = None
    attempt = world.send(10)
    member = world.registry.member(A)
    assert member is not None
    member.goes_down("no answer within 5 s")
    world.pass_time(29)
    assert attempt.silent_s == 0
    world.pass_time(2)
    assert attempt.silent_s >= 30


async def test_of_one_that_is_down_no_tokens_are_awaited_for_an_answer_that_is_no_stream(world: World) -> None:
    attempt = world.send(10, streams=False, answer_tokens=None)
    member = world.registry.member(A)
    assert member is not None
    member.goes_down("no answer within 5 s")
    world.pass_time(29)
    assert attempt.silent_s == 0
    world.pass_time(2)
    assert attempt.silent_s >= 30
