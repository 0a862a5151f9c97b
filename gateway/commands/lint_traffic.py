"""Where `prefixgate lint` asks a gateway or its ledger instead of reading files: both give a `Report` to be printed."""

from gateway.commands.lint_print import Report
from gateway.terminal import refused


def live_report() -> Report:
    """What a running gateway saw."""
    raise refused("--live: no gateway of this version can be asked")


def ledger_report() -> Report:
    """What a ledger says of a period."""
    raise refused("--from-ledger: no ledger of this version has it")
