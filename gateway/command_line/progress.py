"""How far long work has come, a line on standard error that goes away: done, of how many, how fast, how long still.

    probes  ━━━━━━━━━━━━━━━━╺━━━━━━━━━  1,204/4,800  312/s  0:00:11

Only on a terminal. In a pipe, in a log, with --quiet or --json nothing is said, so nothing has to be filtered out.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Said = Callable[[int, int | None], None]
"""Told how much is done, and of how much (None: nobody knows)."""


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Said]:
    """A function to tell how far `what` is, such as "files". It costs nothing where nobody watches."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield nobody
        return
    from rich.console import Console  # noqa: PLC0415 - only what is seen is loaded
    from rich.progress import (  # noqa: PLC0415 - likewise
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text  # noqa: PLC0415 - likewise

    class Rate(ProgressColumn):
        """Done, of how many, and how many a second."""

        def render(self, task: Task) -> Text:
            of = "" if task.total is None else f"/{task.total:,.0f}"
            speed = "" if task.speed is None else f"  {task.speed:,.0f}/s"
            return Text(f"{task.completed:,.0f}{of}{speed}")

    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def nobody(done: int, total: int | None) -> None:
    """Takes what nobody asked for."""
