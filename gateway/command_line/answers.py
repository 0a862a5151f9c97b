"""JSON on standard output: what a command found, and nothing else beside it."""

import json

import typer


def print_json(found: object, *, is_line: bool = False) -> None:
    """Print what is known as JSON. Amounts are text by then, times ISO in UTC, and what is unknown is null.

    `is_line`: in one line, where others follow.
    """
    typer.echo(json.dumps(found, indent=None if is_line else 2))
