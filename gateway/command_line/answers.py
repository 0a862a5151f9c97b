"""JSON on standard output: what a command found, and nothing else beside it."""

import json

import typer


def print_json(found: object) -> None:
    """Print what is known as JSON. Amounts are text by then, times ISO in UTC, and what is unknown is null."""
    typer.echo(json.dumps(found, indent=2))
