"""What holds of every plan, whatever model and GPU."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.hardware import BASE_S, GPUS
from backends.models import CATALOGUE
from backends.planning import (
    ApiPrice,
    Limits,
    Machine,
    Request,
    apart,
    at_batch,
    best,
    break_even_tokens,
    capacity,
    decode_step,
    most_sequences,
    prefill,
    readable,
    speed_up,
    token_costs,
    tokens_a_step,
)

USUAL = Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"])

machines = st.builds(
    Machine,
    model=st.sampled_from(list(CATALOGUE.values())),
    gpu=st.sampled_from(list(GPUS.values())),
    gpus=st.sampled_from([1, 2, 4, 8, 16]),
    weight_bits=st.sampled_from([16, 8, 4]),
    kv_bits=st.sampled_from([16, 8, 4]),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    prompt = draw(st.integers(2, 30_000))
    return Request(prompt, draw(st.integers(1, 2_000)), draw(st.integers(0, prompt - 1)))


@given(machines, requests())
def test_prices_of_tokens_add_up_to_the_time_of_the_gpus(machine: Machine, request: Request) -> None:
    served = best(machine, request)
    if served is None:
        return
    costs = token_costs(machine, served, 3.6)
    paid = (
        request.uncached_tokens * costs.fresh
        + request.cached_tokens * costs.cached
        + request.output_tokens * costs.output
    ) / 1e6
    seconds = served.prefill.seconds + request.output_tokens * served.step.seconds / served.sequences
    assert paid == pytest.approx(seconds * machine.gpus * 3.6 / 3600)
    assert seconds * served.requests_per_s == pytest.approx(1)
    assert min(costs.fresh, costs.cached, costs.output) >= 0


@given(machines, requests(), st.integers(1, 300))
def test_larger_batches_serve_more_and_wait_longer(machine: Machine, request: Request, count: int) -> None:
    fewer, more = at_batch(machine, request, count), at_batch(machine, request, count + 1)
    assert more.requests_per_s > fewer.requests_per_s * (1 - 1e-9)
    assert more.itl_s >= fewer.itl_s * (1 - 1e-9)
    assert more.ttft_p90_s >= fewer.ttft_p90_s * (1 - 1e-9)
    assert fewer.requests_per_s * fewer.request.output_tokens * fewer.itl_s == pytest.approx(count)


@given(machines, requests(), st.floats(0.01, 5), st.floats(0.001, 0.5))
def test_limits_are_kept_and_one_answer_more_would_break_one(
    machine: Machine, request: Request, ttft_s: float, itl_s: float
) -> None:
    served = best(machine, request, Limits(ttft_s, itl_s))
    room = most_sequences(machine, request.prompt_tokens + request.output_tokens).value
    if served is None:
        one = at_batch(machine, request, 1)
        assert room < 1 or one.ttft_p90_s > ttft_s or one.itl_s > itl_s or one.prefill_share > 0.95
        return
    assert served.ttft_p90_s <= ttft_s
    assert served.itl_s <= itl_s
    more = at_batch(machine, request, served.sequences + 1)
    breaks = {
        "memory for KV cache": served.sequences + 1 > room,
        "time between tokens": more.itl_s > itl_s,
        "time to first token": more.ttft_p90_s > ttft_s,
        "prefill: all of the time goes into prompts": more.prefill_share > 0.95,
    }
    assert breaks[served.binds]


@given(machines, st.integers(1, 20_000), st.integers(0, 20_000))
def test_what_is_cached_is_not_computed(machine: Machine, new: int, cached: int) -> None:
    whole, rest = prefill(machine, new + cached), prefill(machine, new + cached, cached)
    assert rest.arithmetic_s <= whole.arithmetic_s
    alone = prefill(machine, new)
    assert rest.arithmetic_s >= alone.arithmetic_s * (1 - 1e-9)


def test_computing_a_prompt_in_two_parts_is_the_same_arithmetic() -> None:
    machine = Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"])
    parts = prefill(machine, 1_000), prefill(machine, 3_000, 1_000)
    assert sum(one.arithmetic_s for one in parts) == pytest.approx(prefill(machine, 3_000).arithmetic_s)


@given(machines)
def test_what_does_not_fit_has_no_capacity(machine: Machine) -> None:
    fits = machine.weight_bytes < machine.room_bytes
    assert fits or capacity(machine).value == 0
    assert most_sequences(machine, 100).value * machine.kv_bytes(100) <= max(
        0, machine.room_bytes - machine.weight_bytes
    )


@given(st.floats(0, 1), st.integers(0, 16))
def test_a_step_of_a_speculation_makes_one_token_at_least_and_one_more_than_proposed_at_most(
    acceptance: float, proposed: int
) -> None:
    made = tokens_a_step(acceptance, proposed)
    assert 1 <= made <= proposed + 1 + 1e-9
    summed = sum(acceptance**accepted for accepted in range(proposed + 1))
    assert made == pytest.approx(summed)


def test_speculation_pays_with_few_answers_and_not_with_many() -> None:
    machine = Machine(CATALOGUE["llama-3.1-70b"], GPUS["h100"], 4)
    draft = Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"], 4)
    ups = [speed_up(machine, 0.7, 4, draft=draft, sequences=count) for count in (1, 16, 128, 1024)]
    assert ups[0] > 1.5
    assert ups[-1] < 1
    assert all(more > less for more, less in pairwise(ups))


def test_apart_the_time_between_tokens_has_no_prefills_in_it() -> None:
    machine, request = Machine(CATALOGUE["llama-3.1-70b"], GPUS["h100"], 4), Request(6_000, 300)
    together = best(machine, request, Limits(4, 0.06))
    two = apart(machine, request, 10, Limits(4, 0.04), 50e9)
    assert together is not None
    assert two is not None
    assert two.itl_s <= 0.04
    assert two.ttft_p90_s <= 4
    assert two.carrying_s == pytest.approx(machine.kv_bytes(6_000) / 50e9)
    assert two.prefill_busy < 0.9
    assert apart(machine, request, 10, Limits(0.01, 0.04), 50e9) is None


@given(machines, requests(), st.floats(0.1, 100), st.floats(0.1, 5), st.floats(0.01, 0.5))
def test_apart_the_first_token_waits_for_a_step_of_all_who_are_answered(
    machine: Machine, request: Request, requests_per_s: float, ttft_s: float, itl_s: float
) -> None:
    two = apart(machine, request, requests_per_s, Limits(ttft_s, itl_s), 50e9)
    if two is None:
        return
    step_s = decode_step(machine, two.sequences, request.context_tokens).seconds
    prefill_s = prefill(machine, request.prompt_tokens, request.cached_tokens).seconds
    assert two.itl_s == step_s <= itl_s
    assert BASE_S + prefill_s + two.carrying_s + step_s <= two.ttft_p90_s <= ttft_s * (1 + 1e-9)
    assert two.prefill_replicas * two.prefill_busy == pytest.approx(requests_per_s * prefill_s)
    assert two.decode_replicas * two.sequences >= requests_per_s * request.output_tokens * step_s * (1 - 1e-9)


def test_apart_a_tight_limit_of_the_first_token_is_kept_by_smaller_batches() -> None:
    machine, request = Machine(CATALOGUE["llama-3.1-70b"], GPUS["h100"], 4), Request(2_000, 300)
    kept = [apart(machine, request, 20, Limits(ttft_s), 50e9) for ttft_s in (0.45, 0.6, 4)]
    tight, loose, free = (one for one in kept if one is not None)
    assert tight.sequences < loose.sequences <= free.sequences
    assert tight.prefill_replicas + tight.decode_replicas >= free.prefill_replicas + free.decode_replicas


def test_more_gpus_than_kv_heads_keep_copies_and_latent_caches_are_kept_by_all() -> None:
    assert Machine(CATALOGUE["qwen2.5-7b"], GPUS["h100"], 8).kv_copies == 2
    assert Machine(CATALOGUE["qwen2.5-7b"], GPUS["h100"], 4).kv_copies == 1
    assert Machine(CATALOGUE["deepseek-v3"], GPUS["h100"], 8).kv_copies == 8


def test_a_figure_reads_with_its_unit_and_how_it_came_about() -> None:
    figure = prefill(Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"]), 1_000).figure("prefill")
    assert str(figure).startswith("prefill: 36.7 ms = (2 × 8.03e+09 × 1,000 tokens")
    assert readable(141.2e9, "B") == "141.2 GB"
    assert readable(12_345.6, "tokens/s") == "12,346 tokens/s"
    assert readable(2.5e-7, "s") == "2.5e-07 s"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: Request(0, 1), "at least one token"),
        (lambda: Request(10, 1, 10), "its last one is always computed"),
        (lambda: replace(USUAL, gpus=0), "1 or more"),
        (lambda: at_batch(USUAL, Request(1, 1), 0), "at least one answer"),
        (lambda: prefill(USUAL, 10, 11), "part of the prompt"),
        (lambda: most_sequences(USUAL, 0), "at least one token"),
        (lambda: tokens_a_step(1.1, 2), "from 0 to 1"),
        (lambda: token_costs(USUAL, at_batch(USUAL, Request(1, 1), 1), 1.0, 0.0), "above 0 and at most 1"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        wrong()


@given(requests(), st.floats(0.1, 20), st.floats(0.1, 60))
def test_at_the_break_even_both_cost_the_same(request: Request, in_price: float, out_price: float) -> None:
    tokens = break_even_tokens(request, ApiPrice(in_price, out_price), 2, 3.0)
    each = request.prompt_tokens + request.output_tokens
    asked = tokens / each * (request.prompt_tokens * in_price + request.output_tokens * out_price) / 1e6
    assert asked == pytest.approx(2 * 3.0 * 730.5)
