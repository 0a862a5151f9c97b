import json
from pathlib import Path

import pytest

from bench import result
from bench.result import Goal, write_result


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("ratio", 0.6, 0.6, "<="), True),
        (Goal("ratio", 0.61, 0.6, "<="), False),
        (Goal("rate", 900, 800, ">="), True),
        (Goal("rate", 799, 800, ">="), False),
    ],
)
def test_a_goal_is_met_on_the_right_side_of_its_bound(goal: Goal, met: bool) -> None:
    assert goal.met is met
    assert goal.text().startswith("met " if met else "NOT MET ")


def test_a_result_carries_commit_machine_versions_rows_and_every_goal(tmp_path: Path) -> None:
    goals = [Goal("ratio", 0.47, 0.6, "<="), Goal("rate", 1, 2, ">=")]
    path = write_result("demo", [{"seed": 1}], goals, ["aiohttp", "no-such-package"], tmp_path / "results")
    written = json.loads(path.read_text())
    assert path.name == "demo.json"
    assert list(written) == ["name", "commit", "machine", "versions", "rows", "goals"]
    assert written["name"] == "demo"
    assert written["machine"]["cores"] >= 1
    assert set(written["machine"]) == {"cpu", "cores", "memory_gib", "system"}
    assert set(written["versions"]) == {"python", "aiohttp", "no-such-package"}
    assert written["versions"]["no-such-package"] is None
    assert written["rows"] == [{"seed": 1}]
    assert written["goals"] == [
        {"name": "ratio", "value": 0.47, "bound": 0.6, "sense": "<=", "met": True},
        {"name": "rate", "value": 1, "bound": 2, "sense": ">=", "met": False},
    ]


def test_a_result_made_outside_a_checkout_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "ROOT", tmp_path)
    assert result.commit() is None


def test_a_checkout_with_changes_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        result, "_git", lambda *arguments: "abc" if arguments[0] == "rev-parse" else " M gateway/cli.py"
    )
    assert result.commit() == "abc+changes"
