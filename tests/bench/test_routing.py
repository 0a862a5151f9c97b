"""The routing benchmark: what is run, what is kept of it, and what it is held against."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from backends.simulated import PRESETS, EngineSpec
from bench import routing
from bench.result import ROOT
from bench.routing_fleets import LADDER, WARM_UP_S, llm_d_ladder, llm_d_stages
from bench.routing_page import BEGIN, END
from bench.routing_reference import POOL, HeadFirst, Workers, reference
from bench.routing_report import AT, cell, number, rows_of
from bench.routing_runs import Job, jobs_of, key_of, run, run_jobs
from bench.routing_tables import TABLES
from bench.routing_types import CEILING, POOLED, UNLIMITED, Column, Outcome, Outcomes, Sample, Scenario, Table
from gateway.sim.cache_only import play_caches, pooled_hit_share
from gateway.sim.fleet import FleetPlan
from gateway.sim.loads import arrivals, shared_prefix
from gateway.sim.play import OURS, play
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain

TWO = FleetPlan.of(2, EngineSpec(capacity_blocks=64))


def load(seed: int) -> Workload:
    return arrivals.poisson(shared_prefix(4, 5, 160, 32, 4, seed=seed), 5.0, seed)


def small(full: bool) -> Table:
    policies = (OURS, "rr") if full else (OURS,)
    return Table(
        "S",
        "Small",
        "Four groups.",
        [Scenario("with time", load, TWO, policies), Scenario("caches", load, TWO, policies, timed=False)],
        lambda outcomes: outcomes.never_worse("S", "with time", "ttft_p90_s", ("rr",)),
    )


MAKERS = {"S": small}


def outcomes_of(figures: dict[str, list[float]]) -> Outcomes:
    outcomes = Outcomes()
    for policy, values in figures.items():
        for seed, value in enumerate(values):
            outcomes.add(Outcome("one", policy, seed, {"ttft_p90_s": value}))
    return outcomes


def request(number: int, names: list[int], session: str = "") -> SimRequest:
    chain = Chain(b"".join(name.to_bytes(8, "little") for name in names), 16, 16 * len(names))
    return SimRequest(number, float(number), chain, 1, session)


def test_every_table_can_be_made_whole_and_short_with_scenarios_of_different_names() -> None:
    for key, maker in TABLES.items():
        for full in (True, False):
            table = maker(full)
            names = [scenario.name for scenario in table.scenarios]
            assert table.key == key
            assert len(set(names)) == len(names) > 0
            assert table.text.strip()
            assert table.title


def test_the_short_run_asks_no_policy_that_the_whole_one_leaves_out() -> None:
    for maker in TABLES.values():
        whole = {scenario.name: set(scenario.policies) for scenario in maker(True).scenarios}
        everyone = set[str]().union(*whole.values())
        for scenario in maker(False).scenarios:
            assert set(scenario.policies) <= whole.get(scenario.name, everyone)


def test_a_table_has_no_scenario_that_nobody_named() -> None:
    with pytest.raises(KeyError, match="has no scenario 'other'"):
        small(True).scenario("other")


def test_a_job_is_run_once_and_kept(tmp_path: Path) -> None:
    jobs = list(jobs_of(small(True), True, 1))
    first = list(run_jobs(MAKERS, jobs, processes=1, kept=tmp_path))
    again = list(run_jobs(MAKERS, jobs, processes=1, kept=tmp_path))
    assert [done.outcome for done in again] == [done.outcome for done in first]
    assert all(done.seconds > 0 for done in first)
    assert all(done.seconds == 0 for done in again)
    assert len(list(tmp_path.iterdir())) == len(jobs) == 6


def test_processes_of_their_own_find_the_same(tmp_path: Path) -> None:
    jobs = [job for job in jobs_of(TABLES["G"](False), False, 1) if job.policy in ("rr", "random")][:2]
    there = {done.job: done.outcome for done in run_jobs(TABLES, jobs, processes=2, kept=tmp_path)}
    here = {job: run(TABLES["G"](False).scenario(job.scenario), job.policy, job.seed) for job in jobs}
    assert {job: outcome.figures for job, outcome in there.items()} == here


def test_what_is_kept_depends_on_policy_seed_and_fleet() -> None:
    def larger(full: bool) -> Table:
        table = small(full)
        plan = FleetPlan.of(2, EngineSpec(capacity_blocks=65))
        return replace(table, scenarios=[replace(scenario, plan=plan) for scenario in table.scenarios])

    job = Job("S", True, "with time", "rr", 0)
    keys = [key_of(MAKERS, job), key_of(MAKERS, replace(job, policy=OURS)), key_of(MAKERS, replace(job, seed=1))]
    keys += [key_of({"S": larger}, job), key_of(MAKERS, replace(job, scenario="caches"))]
    assert len(set(keys)) == len(keys)
    assert key_of(MAKERS, replace(job, full=False)) == keys[0]


def test_without_time_no_figure_of_time_is_told() -> None:
    figures = run(small(True).scenario("caches"), "rr", 0)
    assert 0 < figures["hit_share"] < 1
    assert not [name for name in figures if name.endswith("_s")]


def test_no_policy_hits_more_than_the_cache_without_a_limit() -> None:
    scenario = small(True).scenario("with time")
    ceilings = run(scenario, CEILING, 0)
    assert ceilings[POOLED] <= ceilings[UNLIMITED]
    assert max(run(scenario, policy, 0)["hit_share"] for policy in scenario.policies) <= ceilings[UNLIMITED]


def test_one_cache_played_without_time_is_the_pooled_one() -> None:
    one = FleetPlan.of(1, EngineSpec(capacity_blocks=40))
    assert play_caches(load(0), one, "rr").hit_share == pytest.approx(pooled_hit_share(load(0), 40))


def test_a_prompt_longer_than_the_cache_keeps_its_beginning() -> None:
    long = Workload("long", 16, [request(0, [1, 2, 3, 4]), request(1, [1, 2, 3, 4])])
    assert pooled_hit_share(long, 3) == pytest.approx(3 / 8)


def test_an_empty_load_hits_nothing() -> None:
    assert pooled_hit_share(Workload("none", 16, [])) == 0.0


def test_within_two_standard_errors_of_nothing_is_not_worse() -> None:
    outcomes = outcomes_of({OURS: [1.0, 1.2, 1.1], "close": [1.1, 1.0, 1.1], "better": [0.5, 0.6, 0.5]})
    close, better = outcomes.never_worse("S", "one", "ttft_p90_s", ("close", "better", OURS, "absent"))
    assert close.met
    assert not better.met
    assert better.value == pytest.approx((0.5 + 0.6 + 0.6) / 3)


def test_where_more_is_better_less_is_worse() -> None:
    outcomes = outcomes_of({OURS: [1.0, 1.0], "more": [2.0, 2.0], "less": [0.5, 0.5]})
    goals = outcomes.never_worse("S", "one", "ttft_p90_s", ("more", "less"), more_is_better=True)
    assert [goal.met for goal in goals] == [False, True]


def test_goals_are_of_means() -> None:
    outcomes = outcomes_of({OURS: [1.0, 3.0]})
    assert outcomes.at_least("S", "one", "ttft_p90_s", 2.0).met
    assert not outcomes.at_most("S", "one", "ttft_p90_s", 1.9).met
    assert math.isnan(outcomes.at_most("S", "one", "hit_share", 1.9).value)


def test_the_standard_error_is_that_of_the_mean() -> None:
    assert Sample([1.0, 3.0]).error == pytest.approx(1.0)
    assert Sample([1.0]).error == 0.0
    assert math.isnan(Sample([]).mean)


def test_a_row_has_means_and_errors_and_its_cells_show_those_that_count() -> None:
    outcomes = outcomes_of({OURS: [0.10, 0.12]})
    (row,) = rows_of(replace(small(True), scenarios=[Scenario("one", load, TWO, (OURS,))]), outcomes)
    assert (row["seeds"], row["ttft_p90_s"], row["ttft_p90_s_error"]) == (2, 0.11, 0.01)
    assert cell(row, Column("p90", "ttft_p90_s")) == "0.11 ± 0.01"
    assert cell(row, Column("p90", "ttft_p90_s", 1)) == "0.1"
    assert cell(row, Column("p90", "ttft_p90_s", errors=False)) == "0.11"
    assert cell(row, Column("p99", "ttft_p99_s")) == "–"
    assert math.isnan(number(row, "policy"))


def test_the_ladder_has_figures_for_each_stage_after_the_warm_up() -> None:
    short = arrivals.until(llm_d_ladder(8, 0), WARM_UP_S + 45)
    figures = llm_d_stages(play(short, FleetPlan.of(8, PRESETS["qwen3_32b_2xh100"]), "rr"))
    assert [name for name in figures if name.startswith("ttft")] == [
        f"ttft_p90_s{AT}{rate:g}/s" for rate, _ in LADDER[1:4]
    ]
    assert all(0 <= value <= 1 for name, value in figures.items() if name.startswith("hit_share"))


def test_blocks_touched_first_are_evicted_first_in_the_published_tables() -> None:
    cache = HeadFirst.of(3)
    assert cache.use(request(0, [1, 2, 3]).chain) == 0
    assert cache.use(request(1, [1, 2, 3]).chain) == 48
    cache.use(request(2, [9]).chain)
    assert cache.cached_blocks(request(3, [1, 2, 3]).chain) == 0
    assert cache.cached_blocks(request(3, [2, 3]).chain) == 2


@pytest.mark.parametrize(
    ("policy", "cached"), [("rr", [0, 0, 16]), ("sticky", [0, 16, 16]), ("longest", [0, 16, 16]), ("random", None)]
)
def test_workers_of_the_published_tables_choose_as_told(policy: str, cached: list[int] | None) -> None:
    workers = Workers([HeadFirst.of(8), HeadFirst.of(8)], policy, 0)
    found = [workers.send(request(number, [1], "a")) for number in range(3)]
    assert cached is None or found == cached
    assert sum(workers.work) == 48 - sum(found)


def test_a_line_of_table_a_stands_beside_what_was_published() -> None:
    table = reference(False)
    scenario = table.scenario("conversation, one pool of 1 M")
    outcomes = Outcomes()
    outcomes.add(Outcome(scenario.name, POOL, 0, run(scenario, POOL, 0)))
    (goal,) = table.goals(outcomes)
    assert goal.met
    assert outcomes.sample(scenario.name, POOL, "reference").mean == 0.0542


def test_a_part_of_the_run_is_printed_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(routing, "TABLES", MAKERS | {"T": small})
    monkeypatch.setattr(routing, "UNCOMMITTED", tmp_path / "results")
    monkeypatch.setattr("bench.routing_runs.KEPT", tmp_path)
    arguments = ["--full", "--tables", "S", "--policies", "prefixgate,rr", "--seeds", "2", "--processes", "1"]
    assert routing.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "S  Small" in printed
    assert "one cache of all" in printed
    assert "ttft_p90_s, prefixgate − rr" in printed
    assert not (tmp_path / "results").exists()


def test_a_whole_run_of_changed_files_leaves_its_result_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(routing, "TABLES", MAKERS)
    monkeypatch.setattr(routing, "UNCOMMITTED", ROOT / "bench" / ".cache" / tmp_path.name)
    monkeypatch.setattr("bench.routing_runs.KEPT", tmp_path)
    monkeypatch.setattr(routing, "commit", lambda: "0123+changes")
    assert routing.main(["--full", "--processes", "1"]) == 0
    path = routing.UNCOMMITTED / "routing.json"
    written = json.loads(path.read_text())
    path.unlink()
    path.parent.rmdir()
    about, *rows = written["rows"]
    assert about == {"run": "full", "seeds": 5}
    assert {row["scenario"] for row in rows} == {"with time", "caches"}
    assert "routing.json" in capsys.readouterr().out


def test_a_selection_does_not_replace_a_result_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "TABLES", MAKERS)
    monkeypatch.setattr(routing, "ROOT", tmp_path)
    monkeypatch.setattr(routing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(routing, "UNCOMMITTED", tmp_path / "aside")
    monkeypatch.setattr(routing, "PAGE", page := tmp_path / "routing.md")
    monkeypatch.setattr(routing, "write_plots", lambda _: ())
    monkeypatch.setattr("bench.routing_runs.KEPT", tmp_path)
    monkeypatch.setattr(routing, "commit", lambda: "0123")
    page.write_text(f"{BEGIN}\n\nnothing\n{END}")
    runs = []
    for arguments in (["--processes", "1"], ["--full", "--processes", "1"], ["--processes", "1"]):
        assert routing.main(arguments) == 0
        written = json.loads((tmp_path / "results" / "routing.json").read_text())
        runs.append(written["rows"][0]["run"])
    assert runs == ["short", "full", "full"]
    assert (tmp_path / "aside" / "routing.json").exists()
    assert "everything, 5 seeds" in page.read_text()


def test_an_unknown_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        routing.main(["--tables", "Z"])
    assert "there is no table Z" in capsys.readouterr().err
