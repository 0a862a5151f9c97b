"""Folders of templates, as operators keep them."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from gateway.template_metrics import TemplateMetrics
from gateway.templates import TemplateStore

SUPPORT = """\
name: support
version: {version}
reorder: consented
messages:
  - role: system
    content: |
      Time: {{{{ now }}}}

      You are the {tone} agent of a shop.

      Be brief.
  - {{slot: history}}
  - {{role: user, content: "{{{{ question }}}}"}}
slots:
  now: {{volatility: per-request, default: never}}
  history: {{default: []}}
samples:
  - {{question: "Where is my parcel?", now: "10:00"}}
  - {{question: "Can I return it?", now: "10:01"}}
"""
ORDERED = "You are the kind agent of a shop.\n\nBe brief.\n\nTime: {now}\n"


def support(version: str = "1", tone: str = "kind") -> str:
    """The text of a file."""
    return SUPPORT.format(version=version, tone=tone)


def folder(path: Path, **files: str) -> Path:
    """A folder with files `name.yaml`."""
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / f"{name}.yaml").write_text(text)
    return path


def store(path: Path) -> TemplateStore:
    """What keeps the templates of a folder."""
    return TemplateStore(path, TemplateMetrics(CollectorRegistry()))
