"""Programs that a release is checked with: run to their end, and told about where they fail."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class CheckFailed(Exception):
    """What a release may not be, in words for whoever makes it."""


def output_of(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 600) -> str:
    """What a program printed. Raises `CheckFailed` with the end of that where it failed or took too long.

    Nothing of this environment that would change what Python imports is handed on; `env` is added.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = " ".join(map(str, command[:6]))
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**inherited, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"{words}: not done after {timeout_s:.0f} s") from None
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-40:])
        raise CheckFailed(f"{words}: exit status {done.returncode}\n{end}")
    return done.stdout
