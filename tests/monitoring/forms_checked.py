"""The dashboards as Grafana's own library reads them: `make grafana-test`. Its name keeps it out of the suite."""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helm.dashboards.__main__ import DASHBOARDS, FOLDER


def of_grafana(module: str) -> ModuleType:
    """A module of the library that install.sh has got."""
    lib = str(Path(os.environ["PROMETHEUS_DIR"]) / "lib")
    if lib not in sys.path:
        sys.path.append(lib)
    return importlib.import_module(f"grafana_foundation_sdk.{module}")


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """What of ours was not understood: the library keeps the fields that it knows, and no others."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            if name in theirs:
                yield from differences(value, theirs[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other, f"{where}[]")
    elif ours != theirs:
        yield f"{where}: {ours!r}, {theirs!r}"


def read_and_written(board: dict[str, Any]) -> Any:
    """A dashboard once through the library."""
    of_grafana("cog.plugins").register_default_plugins()
    read = of_grafana("models.dashboard").Dashboard.from_json(board)
    return json.loads(json.dumps(read, cls=of_grafana("cog.encoder").JSONEncoder))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_knows_every_field_of_a_dashboard(name: str) -> None:
    board = json.loads((FOLDER / name).read_text())
    assert list(differences(board, read_and_written(board))) == []


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    board = json.loads((FOLDER / "overview.json").read_text())
    panel = next(one for one in board["panels"] if one["type"] == "stat")
    panel["colour"] = "green"
    panel["options"]["shape"] = "round"
    assert set(differences(board, read_and_written(board))) == {".panels[].colour", ".panels[].options.shape"}
