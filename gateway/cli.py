"""The commands by name. Each is loaded when it is called: `gateway/command_line/lazy.py` says how, and how they end."""

import importlib.metadata
from typing import Annotated, Final

import typer

from gateway.command_line.lazy import LazyGroup, Named

_RUN: Final = "Run a gateway"
_ASK: Final = "Ask a running gateway"
_BILL: Final = "What was used, and what it costs"
_PREPARE: Final = "Keys, prices and prompts"
_SIZE: Final = "How much, how fast, on what"
_SHELL: Final = "For the shell"

COMMANDS: Final = (
    Named("demo", "gateway.commands.demo:demo", "Two real engines, three tenants, the same work twice.", _RUN),
    Named("init", "gateway.commands.init:init", "Write a commented configuration to begin with.", _RUN),
    Named("check", "gateway.commands.check:check", "Whether a configuration works, and what to mend first.", _RUN),
    Named("serve", "gateway.commands.serve:serve", "Run the gateway.", _RUN),
    Named("epp", "gateway.commands.epp:epp", "Run the endpoint picker, for gateways built on Envoy.", _RUN),
    Named("status", "gateway.commands.status:status", "How a gateway and its endpoints stand.", _ASK),
    Named("explain", "gateway.commands.explain:explain", "Why a request went where it went.", _ASK),
    Named("index", "gateway.commands.index:index", "What the prefix index of a running gateway holds.", _ASK),
    Named("report", "gateway.commands.report:report", "The bill of a period.", _BILL),
    Named("invoice", "gateway.commands.invoice:invoice", "Invoices out of the ledger.", _BILL),
    Named("cost", "gateway.commands.cost:cost", "What tokens cost, and what is left of the revenue.", _BILL),
    Named("jobs", "gateway.commands.cost:jobs", "The runs of agents.", _BILL),
    Named("verify", "gateway.commands.verify:verify", "Whether what the bills rest on can be true.", _BILL),
    Named("ledger", "gateway.commands.ledger:ledger", "What is in the ledger, its sums, its archives.", _BILL),
    Named("keys", "gateway.commands.keys:keys", "Keys of tenants: made, listed, rotated, revoked.", _PREPARE),
    Named("prices", "gateway.commands.prices:prices", "The price book: what it says, and its slips.", _PREPARE),
    Named("templates", "gateway.commands.templates:templates", "Templates: their order, and its worth.", _PREPARE),
    Named("lint", "gateway.commands.linting:lint", "What in prompts breaks prefixes, and what it costs.", _PREPARE),
    Named("fixes", "gateway.commands.fixes:fixes", "What changing prompts on their way gained.", _PREPARE),
    Named("plan", "gateway.commands.plan:plan_command", "What a model needs on GPUs, and what that costs.", _SIZE),
    Named("simulate", "gateway.commands.simulate:simulate", "What a fleet would do with a load.", _SIZE),
    Named("measure", "gateway.commands.measure:measure", "What is served how fast, and what binds.", _SIZE),
    Named("tune", "gateway.commands.tune:tune", "Settings of an engine: speed, memory, quality.", _SIZE),
    Named("completion", "gateway.commands.completion:completion", "A script with which a shell completes.", _SHELL),
)
"""In the order and under the headings of `prefixgate --help`."""


class _Commands(LazyGroup):
    table = COMMANDS


cli = typer.Typer(
    name="prefixgate",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the console script."""
    cli()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prefixgate {importlib.metadata.version('prefixgate')}")
        raise typer.Exit


@cli.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Sends each LLM request to the GPU that already holds its prefix, and bills what was really computed."""
