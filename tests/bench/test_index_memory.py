"""Memory of the index under unique prompts: bounded at the server and in the gateway's process."""

import json
from pathlib import Path

import pytest

from bench import index_memory
from bench.index_memory import Growth, Sample, goals_of, grow

MiB = 1 << 20


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_memory, "SAMPLES", 10)


async def test_memory_stops_to_grow_where_the_bound_is() -> None:
    growth = await grow(3_000, max_bytes=MiB, capacity_blocks=20_000)
    used = [sample.server_used_bytes for sample in growth.samples]
    assert growth.samples[-1].prompts == 3_000
    assert len(used) == 10
    assert 0.5 * MiB < used[-1] < 1.5 * MiB
    assert max(used[len(used) // 2 :]) < 1.1 * max(used[: len(used) // 2])
    assert (growth.dropped_writes, growth.degraded) == (0, None)


def test_what_grows_in_the_second_half_misses_the_goal() -> None:
    samples = [Sample(number, (100 + number) * MiB, 100 * MiB, 0) for number in range(0, 40, 10)]
    goals = goals_of(Growth(samples, 1.0, dropped_writes=2, degraded=None), max_bytes=130 * MiB)
    assert [(goal.value, goal.met) for goal in goals] == [
        (1.182, False),
        (1.0, True),
        (0.0, True),
        (1.0, True),
        (2, False),
    ]


def test_the_command_prints_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(index_memory, "MAX_BYTES", MiB)
    assert index_memory.main(["--prompts", "400", "--to", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    written = json.loads((tmp_path / "index_memory.json").read_text())
    assert json.loads(printed.out) == written
    assert written["rows"][0]["prompts"] == 400
    assert "writes that never reached the server" in printed.err
