"""`prefixgate demo`: arguments for `gateway/demo/`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gateway.demo import MODELS, demo_options, main
from gateway.terminal import Quiet, refused


def demo(
    seed: Annotated[int, typer.Option(help="Order of the requests.")] = 1,
    keep: Annotated[bool, typer.Option(help="Leave everything running at the end, until Ctrl-C.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what the table shows to this file.")] = None,
    model: Annotated[str, typer.Option(help="smollm2, or tiny: two layers of random weights, in seconds.")] = "smollm2",
    quick: Annotated[bool, typer.Option(help="Three turns of each conversation and short answers.")] = False,
    quiet: Quiet = False,
) -> None:
    """Two real engines, three tenants, the same work twice: round robin, then prefix-aware."""
    if model not in MODELS:
        raise refused(f"--model must be one of {', '.join(MODELS)}, not {model!r}")
    options = replace(demo_options(seed, model, quick=quick, keep=keep), quiet=quiet)
    raise typer.Exit(main(options, json_file, Console()))
