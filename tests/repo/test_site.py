"""The documentation as a site: every page has its place, and what pages say can be typed exists."""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gateway.cli import cli
from gateway.config import Config, load_config
from gateway.telemetry import Telemetry
from gateway.ui.remedies import REMEDIES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README = ROOT / "README.md"
TEXTS = (README, *PAGES)
OTHER_FILES = {
    "prices",
    "tenants",
    "endpoints",
    "apiVersion",
    "seller",
    "image",
    "secrets",
    "plans",
    "messages",
    "http_filters",
    "grid",
}
"""By one of these keys a YAML block is a price book, a keys file, ..., and no configuration of the gateway."""
ALERTS = ROOT / "helm" / "prefixgate" / "files" / "alerts.yaml"
COMMAND_LINE = r"^\s*(?:\$ )?(?:\S*/)?prefixgate ((?:[a-z-]+|--[a-z]).*)"
NO_COMMANDS = {"route 1"}
"""What a hash is made of."""
OF_ALL_COMMANDS = {"--install-completion", "--show-completion"}
LIST_ITEM = re.compile(r"(?:-|\d+\.) ")
NO_METRICS = {"prefixgate_correction"}
"""The code of an event in Lago."""


def code_of(page: Path) -> str:
    """What stands in code blocks and between backticks, a line each; commands that go on in the next line are one."""
    text = page.read_text()
    blocks = re.findall(r"^ *```[^\n]*\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join((*blocks, *spans)).replace("\\\n", " ")


def test_every_page_has_its_place_in_the_navigation() -> None:
    placed = re.findall(
        r"([\w/.-]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2], flags=re.MULTILINE
    )
    assert len(placed) == len(set(placed))
    assert set(placed) == {str(page.relative_to(DOCS)) for page in PAGES}


def test_whatever_can_be_degraded_is_on_the_page_for_operators_and_in_the_runbook() -> None:
    section = (DOCS / "operations.md").read_text().partition("## Degraded")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == set(REMEDIES)
    alert = (DOCS / "runbook.md").read_text().partition("## PrefixgateDegraded")[2].partition("\n## ")[0]
    rows = "\n".join(re.findall(r"^\| (`[^|]+)\|", alert, flags=re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == set(REMEDIES)


def test_lists_begin_after_an_empty_line_as_the_site_needs_it() -> None:
    wrong = []
    for page in PAGES:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for first, *others in (
            paragraph.splitlines() for paragraph in re.split(r"\n\s*\n", prose) if paragraph.strip()
        ):
            if not LIST_ITEM.match(first):
                wrong += [f"{page.name}: {line}" for line in others if LIST_ITEM.match(line)]
    assert wrong == []


def test_the_figures_of_the_first_page_are_those_of_the_demo() -> None:
    found = json.loads((ROOT / "bench" / "results" / "demo.json").read_text())["rows"]
    text = (DOCS / "index.md").read_text()
    for policy in ("round_robin", "prefix"):
        runs = [run for row in found for run in row["runs"] if run["policy"] == policy]
        computed, seconds = ([run[name] for run in runs] for name in ("computed_tokens", "ttft_p50_s"))
        assert f"{min(computed):,} to {max(computed):,}" in text
        assert f"{min(seconds):.2f} to {max(seconds):.2f}" in text


def test_what_a_request_costs_is_told_with_the_same_figures_everywhere() -> None:
    measured = README.read_text().partition("<!-- overhead -->")[2].partition("<!-- /overhead -->")[0]
    compared = (DOCS / "compare.md").read_text().partition("## What it costs a request")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| (.*?) \| (.*?) \|$", compared.replace("*", ""), flags=re.MULTILINE)
    rows = [row for row in rows if row[0][0].isdigit()]
    assert len(rows) == 4
    assert [row for row in rows if f"| {row[0]} | {row[1]} |" not in measured.replace("*", "")] == []
    paid = re.findall(r"requests/s instead of ([\d,]+)", (DOCS / "migrate.md").read_text())
    assert len(paid) == 2
    assert [figure for figure in paid if figure not in measured] == []


def test_the_site_is_built_with_pinned_versions() -> None:
    lines = (DOCS / "site" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []


def test_every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() -> None:
    names = [alert["alert"] for alert in yaml.safe_load(ALERTS.read_text())]
    text = (DOCS / "runbook.md").read_text()
    assert sorted(re.findall(r"^## (Prefixgate\w+)$", text, flags=re.MULTILINE)) == sorted(names)
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if section.startswith("Prefixgate"):
            assert "**Means.**" in section, section.splitlines()[0]
            assert "**Wake somebody.**" in section, section.splitlines()[0]


def yaml_of(text: str) -> list[str]:
    """The YAML blocks of a page, those in lists too."""
    found = re.findall(r"^( *)```yaml\n(.*?)^\1```", text, flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_yaml_on_a_page_is_a_configuration_that_loads(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(yaml_of(page.read_text())):
        if set(yaml.safe_load(block)) & OTHER_FILES:
            continue
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        assert isinstance(load_config(file, {}, {}), Config)


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Each command by its words, with its options."""
    command = getattr(
        group, "loaded", group
    )  # those of the first level are loaded when somebody asks for more than a name
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    yield before, options | {"--help"}
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*before, name))


def test_every_command_on_a_page_exists_with_its_options() -> None:
    known = dict(commands(typer.main.get_command(cli)))
    wrong = []
    for page in TEXTS:
        for line in re.findall(COMMAND_LINE, code_of(page), flags=re.MULTILINE):
            words = re.split(r"[|;&#<>]|\s2>", line)[0].split()
            name = next((tuple(words[:n]) for n in (2, 1, 0) if tuple(words[:n]) in known), ())
            options = {word.partition("=")[0] for word in words if re.fullmatch(r"-c|--[a-z].*", word)}
            if not (name or options or line in NO_COMMANDS) or options - known[name] - OF_ALL_COMMANDS:
                wrong.append(f"{page.name}: prefixgate {line}")
    assert wrong == []


def test_every_make_target_on_a_page_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        (page.name, name)
        for page in TEXTS
        for name in re.findall(r"^make ([a-z-]+)", code_of(page), flags=re.MULTILINE)
    }
    assert {(page, name) for page, name in named if name not in targets} == set()


def test_every_metric_on_a_page_exists() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "gateway").rglob("*.py"))
    names = Telemetry().names() | set(re.findall(r'"(prefixgate_[a-z0-9_]+)"', sources))
    endings = ("", "_total", "_bucket", "_sum", "_count")
    known = {f"{name}{ending}" for name in names for ending in endings} | NO_METRICS
    wrong = {
        (page.name, metric)
        for page in TEXTS
        for metric, more in re.findall(r"\b(prefixgate_[a-z0-9_]+)(\.\.\.)?", code_of(page))
        if metric not in known and not more and not metric.endswith("_")
    }
    assert wrong == set()
