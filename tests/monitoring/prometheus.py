"""Prometheus' own programs, and the rules of the chart as a Prometheus without its operator reads them."""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.declared import FILES

NAMESPACE = "llm"


def program(name: str) -> Path:
    """One of the programs that install.sh has unpacked."""
    return Path(os.environ["PROMETHEUS_DIR"]) / "bin" / name


def rules() -> dict[str, Any]:
    """Alerts and recordings of one namespace, as the chart renders them."""
    groups = []
    for name in ("alerts", "recording"):
        text = (FILES / f"{name}.yaml").read_text()
        text = text.replace("NAMESPACE", NAMESPACE).replace("RUNBOOK", "docs/runbook.md")
        groups.append({"name": name, "rules": yaml.safe_load(text)})
    return {"groups": groups}


def promtool(*arguments: str | Path, within: Path, stdin: str = "") -> str:
    """What promtool says; fails where it is not content."""
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=within, input=stdin, capture_output=True, text=True, timeout=120
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
