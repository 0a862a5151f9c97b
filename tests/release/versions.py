"""The places that name a version, held together: the tag, the chart, the fallback of builds without git."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Versions:
    """What each place says; `tag` is None where the commit has none of a version."""

    chart: str
    chart_app: str
    fallback: str
    tag: str | None = None


def versions_in(checkout: Path, tag: str | None = None) -> Versions:
    """As the files of a checkout have them."""
    chart = yaml.safe_load((checkout / "helm" / "prefixgate" / "Chart.yaml").read_text())
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    fallback = project["tool"]["hatch"]["version"]["fallback-version"]
    return Versions(str(chart["version"]), str(chart["appVersion"]), fallback, tag)


def disagreements(versions: Versions) -> list[str]:
    """In words; [] where all name one release."""
    found = []
    if versions.chart != versions.chart_app:
        found.append(f"Chart.yaml: version is {versions.chart}, appVersion {versions.chart_app}")
    if Version(versions.fallback).base_version != Version(versions.chart_app).base_version:
        found.append(f"fallback-version {versions.fallback} is on the way to another release than {versions.chart_app}")
    if not Version(versions.fallback).is_devrelease:
        found.append(f"fallback-version {versions.fallback} must be a .dev: a copy without git is of no known commit")
    if versions.tag is not None and (re.sub("^v", "", versions.tag) != versions.chart_app):
        found.append(f"the tag {versions.tag} is not the chart's {versions.chart_app}")
    return found
