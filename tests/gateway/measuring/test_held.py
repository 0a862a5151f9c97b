"""What engines say of themselves, and what the plan's arithmetic has, beside what was measured."""

from dataclasses import replace

import pytest

from backends.hardware import GPUS
from backends.models import CATALOGUE
from backends.planning import Machine, decode_step, prefill
from gateway.measuring.engine_use import use_of, with_use
from gateway.measuring.roofline import held_against
from gateway.measuring.study import Frame, study_of
from gateway.measuring.text import verdict_lines
from gateway.measuring.types import EngineUse, Study
from tests.gateway.measuring.test_verdict import USUAL
from tests.gateway.measuring.virtual import closed_loop, window_of


@pytest.fixture(scope="module")
def study() -> Study:
    return study_of("s", [window_of(*closed_loop(USUAL, n, (500, 50)), n) for n in (1, 8)], Frame())


def row(name: str, running: int | None, waiting: int | None, kv_use: float | None) -> dict[str, object]:
    return {"id": name, "running_requests": running, "waiting_requests": waiting, "kv_use": kv_use}


def test_what_engines_say_is_averaged_and_what_none_says_is_none() -> None:
    pages = [[row("a", 2, 0, 0.5), row("b", None, None, None)], [row("a", 4, None, 0.75)]]
    assert use_of(pages) == (EngineUse("a", 3.0, 0.0, 0.625), EngineUse("b", None, None, None))


@pytest.mark.parametrize(
    ("waiting", "kv_use", "turn"),
    [(3.0, 0.97, "a larger KV cache"), (3.0, 0.4, "more answers at once"), (0.2, 1.0, None)],
)
def test_requests_that_wait_say_whether_the_cache_or_the_batch_is_too_small(
    study: Study, waiting: float, kv_use: float, turn: str | None
) -> None:
    found = with_use(study, [EngineUse("a", 8.0, waiting, kv_use)])
    added = found.verdict.turn[: len(found.verdict.turn) - len(study.verdict.turn)]
    assert [one.startswith(turn or "") for one in added] == ([] if turn is None else [True])
    assert any(line.startswith("  because a: 8.0 running") for line in verdict_lines(found))
    assert found.engine_use == (EngineUse("a", 8.0, waiting, kv_use),)


def test_what_the_plan_computes_stands_beside_what_was_measured(study: Study) -> None:
    machine = Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"])
    held = {one.name: one for one in held_against(study, machine)}
    assert held["prefill, s"].measured == pytest.approx(USUAL.prefill_s(500, 500))
    assert held["prefill, s"].computed == pytest.approx(prefill(machine, 500).seconds)
    least, most = study.levels
    assert held["ITL at the least load, s"].computed == pytest.approx(decode_step(machine, 1, 525).seconds)
    n, share = most.in_flight, most.prefill_share or 0
    assert 0 < share < 1 < n
    among_others_s = decode_step(machine, n, 525).seconds / (1 - share * (n - 1) / n)
    assert held["ITL at the most load, s"].computed == pytest.approx(among_others_s)
    assert least.in_flight == pytest.approx(1, abs=0.05)
    output = held["output at the most load, tokens/s"]
    assert output.measured == most.output_tokens_per_s
    assert output.computed == pytest.approx(n / (among_others_s + prefill(machine, 500).seconds / 50))


def test_requests_that_come_by_themselves_meet_prefills_as_often_as_there_are_some(study: Study) -> None:
    """Half of the time idle, and of the rest 40 % in prefills: a fifth of all."""
    machine = Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"])
    came = replace(study.levels[0], clients=None, rate_per_s=1.0, in_flight=1.0, busy_share=0.5, prefill_share=0.4)
    held = {one.name: one.computed for one in held_against(replace(study, levels=[came]), machine)}
    assert held["ITL at the least load, s"] == pytest.approx(decode_step(machine, 1, 525).seconds / 0.8)


def test_two_engines_share_the_gpus_and_the_requests(study: Study) -> None:
    """Two engines of one GPU each with sixteen in flight are one of them with eight."""
    one, two = (Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"], gpus) for gpus in (1, 2))
    levels = [replace(level, in_flight=level.in_flight * 2) for level in study.levels]
    alone = {held.name: held.computed for held in held_against(study, one)}
    both = {held.name: held.computed for held in held_against(replace(study, levels=levels, engines=2), two)}
    output = "output at the most load, tokens/s"
    assert both.pop(output) == pytest.approx(2 * alone.pop(output))
    assert both == pytest.approx(alone)


def test_without_lengths_nothing_is_held_against_anything(study: Study) -> None:
    assert held_against(replace(study, lengths={}), Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"])) == ()


def test_where_prefills_leave_no_time_nothing_of_decode_is_computed(study: Study) -> None:
    levels = [replace(level, prefill_share=0.99, prefill=None, in_flight=100.0) for level in study.levels]
    assert held_against(replace(study, levels=levels), Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"])) == ()
