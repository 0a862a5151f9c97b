"""Writes the chart's rules as one file of Prometheus: rules.py FOLDER FILE.

In the folder each `*.yaml` is a list of rules; NAMESPACE in them is the namespace of a release, here the label that
prometheus.yml gives, and RUNBOOK the page that alerts lead to.
"""

import sys
from pathlib import Path
from typing import Final

import yaml

NAMESPACE: Final = "compose"
RUNBOOK: Final = "docs/runbook.md"


def groups(folder: Path) -> dict[str, list[dict[str, object]]]:
    """A group for each file of the folder, by its name."""
    files = sorted(folder.glob("*.yaml"))
    texts = {path.stem: path.read_text().replace("NAMESPACE", NAMESPACE).replace("RUNBOOK", RUNBOOK) for path in files}
    return {"groups": [{"name": f"prefixgate-{stem}", "rules": yaml.safe_load(text)} for stem, text in texts.items()]}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(yaml.safe_dump(groups(Path(sys.argv[1])), width=120))
