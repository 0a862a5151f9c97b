"""What a check found: the verdict, then what to mend in order of importance, then the tables.

not usable as it stands: 1 of 2 backends is up, 3 of 15 probes differ
to mend, the most important first:
  1. gpu-b-8000 is down: cannot connect
  2. gpu-a-8000 counts other tokens of llama: tools, tool results, multi-turn
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import typer
from rich.markup import escape
from rich.table import Column, Table

from billing.counting import counted
from gateway.checking import Finding
from gateway.proof import Proof, Verdict, summary
from gateway.terminal_tables import show_tables

_MOST_NAMES = 6
_SPARE = ("what would help", "ids equal", "capacity, tokens", "block", "listed by", "without it")
"""Headings that a narrow terminal does without, the first to go first: what would help is said above."""


@dataclass(frozen=True, slots=True)
class Checked:
    """All that was found. `proofs` is None where nobody asked for them; `lost` cannot be found or used, `slips` may be
    wrong; `configuration` is given where it is to be shown."""

    findings: Sequence[Finding]
    proofs: Sequence[Proof] | None
    lost: Sequence[str]
    slips: Sequence[str]
    configuration: str | None = None

    @property
    def differing(self) -> Sequence[Proof]:
        """Probes whose tokens the engine counts otherwise."""
        return [one for one in self.proofs or () if one.verdict is Verdict.DIFFERENT]

    @property
    def is_usable(self) -> bool:
        """Whether nothing speaks against serving with it."""
        return not self.lost and not self.differing and all(one.healthy for one in self.findings)


@dataclass(frozen=True, slots=True)
class Mend:
    """One thing to mend: `about` is an endpoint, or what the configuration calls it."""

    kind: str
    about: str
    what: str

    def text(self) -> str:
        """For people."""
        return f"{self.about}: {self.what}" if self.about else self.what


def to_mend(found: Checked) -> list[Mend]:
    """The most important first: who is down, whose tokens differ, what is not found, slips, what would help."""
    return [*_down(found), *_different(found), *_lost(found), *_slips(found), *_helpful(found)]


def _down(found: Checked) -> Iterator[Mend]:
    for one in found.findings:
        if not one.healthy:
            yield Mend("down", one.endpoint_id, f"it is down: {one.advice}")


def _different(found: Checked) -> Iterator[Mend]:
    for (endpoint, model), proofs in groupby(found.differing, key=lambda one: (one.endpoint_id, one.model)):
        shapes = [one.shape for one in proofs]
        named = ", ".join(shapes[:_MOST_NAMES]) + (", ..." if len(shapes) > _MOST_NAMES else "")
        yield Mend(
            "different_tokens",
            endpoint,
            f"it counts other tokens of {model} in {named}: give models.{model}.tokenizer and .chat_template as the "
            "engine has them",
        )


def _lost(found: Checked) -> Iterator[Mend]:
    return (Mend("not_found", "", f"not found: {word}") for word in found.lost)


def _slips(found: Checked) -> Iterator[Mend]:
    return (Mend("look_at", "", f"look at: {word}") for word in found.slips)


def _helpful(found: Checked) -> Iterator[Mend]:
    return (Mend("would_help", one.endpoint_id, one.advice) for one in found.findings if one.healthy and one.advice)


def verdict(found: Checked) -> str:
    """One line: usable or not, and the figures that it rests on."""
    up = sum(one.healthy for one in found.findings)
    parts = [f"{up} of {counted(len(found.findings), 'backend')} up"]
    if found.proofs:
        parts.append(f"{len(found.differing)} of {counted(len(found.proofs), 'probe')} differ")
    if found.lost:
        parts.append(f"{len(found.lost)} not found")
    return f"{'usable' if found.is_usable else 'not usable as it stands'}: {', '.join(parts)}"


def checked_json(found: Checked) -> dict[str, object]:
    """For programs; what an endpoint did not say is null."""
    said: dict[str, object] = {
        "usable": found.is_usable,
        "verdict": verdict(found),
        "to_mend": [{"kind": one.kind, "about": one.about or None, "what": one.what} for one in to_mend(found)],
        "endpoints": [_endpoint_json(one) for one in found.findings],
        "proofs": None if found.proofs is None else [_proof_json(one) for one in found.proofs],
    }
    return said if found.configuration is None else {**said, "configuration_yaml": found.configuration}


def _endpoint_json(one: Finding) -> dict[str, object]:
    return {
        "endpoint": one.endpoint_id,
        "listed_by": one.sources,
        "up": one.healthy,
        "engine": one.engine,
        "models": None if one.models is None else list(one.models),
        "block_size_tokens": one.block_size,
        "capacity_tokens": one.capacity_tokens,
        "advice": one.advice or None,
        "not_known_to_be_on": [
            {"feature": lack.feature, "standing": lack.standing, "flag": lack.flag or None, "without": lack.without}
            for lack in one.features
        ],
    }


def _proof_json(one: Proof) -> dict[str, object]:
    return {
        "endpoint": one.endpoint_id,
        "model": one.model,
        "shape": one.shape or None,
        "tokenizer": one.source.value,
        "verdict": one.verdict.value,
        "status": one.status,
        "our_tokens": one.ours_tokens,
        "engine_tokens": one.engine_tokens,
        "ids_compared": one.ids_compared,
        "first_difference": one.first_difference,
    }


def show(found: Checked) -> None:
    """Print it for people."""
    typer.echo(verdict(found))
    mend = to_mend(found)
    if mend:
        typer.echo("to mend, the most important first:")
    for number, one in enumerate(mend, 1):
        typer.echo(f"  {number}. {one.text()}")
    if found.configuration is not None:
        typer.echo(f"\nconfiguration in force:\n\n{found.configuration}")
    is_whole = found.configuration is not None
    tables = [_endpoints(found.findings), _features(found.findings), _proofs(found.proofs or (), is_whole=is_whole)]
    console = show_tables(*(table for table in tables if table.row_count), spare=_SPARE, whole="--json")
    if found.proofs is not None:
        console.print(summary(found.proofs), highlight=False)


def _endpoints(findings: Sequence[Finding]) -> Table:
    table = Table("endpoint", "listed by", "up", "engine", "models", "block", "capacity, tokens", "what would help")
    for one in findings:
        sizes = ("unknown" if size is None else f"{size:,}" for size in (one.block_size, one.capacity_tokens))
        row = (one.endpoint_id, one.sources, "yes" if one.healthy else "no", one.engine or "unknown", _models(one))
        table.add_row(*map(escape, (*row, *sizes, one.advice)))
    return table


def _models(one: Finding) -> str:
    if one.models is None:
        return "unknown"
    more = len(one.models) - _MOST_NAMES
    return (", ".join(one.models[:_MOST_NAMES]) or "none") + (f" and {more:,} more" if more > 0 else "")


def _features(findings: Sequence[Finding]) -> Table:
    """What each engine could do for the gateway and is not known to."""
    table = Table("endpoint", "feature", "stands", Column("turned on by", overflow="fold"), "without it")
    for one in findings:
        for lacking in one.features:
            row = (one.endpoint_id, lacking.feature, lacking.standing, lacking.flag or "-", lacking.without)
            table.add_row(*map(escape, row))
    return table


def _proofs(proofs: Sequence[Proof], *, is_whole: bool) -> Table:
    """Every probe, or else those that are not equal."""
    table = Table("endpoint", "model", "shape", "tokenizer", "ours", "engine", "ids equal", "verdict")
    for one in proofs:
        if one.verdict is Verdict.EQUAL and not is_whole:
            continue
        counts = ("-" if count is None else str(count) for count in (one.ours_tokens, one.engine_tokens))
        row = (one.endpoint_id, one.model, one.shape or "-", one.source, *counts, one.ids_equal, one.outcome)
        table.add_row(*map(escape, row), style="bold red" if one.verdict is Verdict.DIFFERENT else None)
    return table
