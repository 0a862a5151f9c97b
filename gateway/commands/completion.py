"""`prefixgate completion`: the script by which a shell completes commands, options and names."""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script


class Shell(StrEnum):
    """Shells that can."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell it is for.")]) -> None:
    """Print the script by which a shell completes commands, options, tenants, keys, models and endpoints."""
    typer.echo(get_completion_script(prog_name="prefixgate", complete_var="_PREFIXGATE_COMPLETE", shell=shell.value))
