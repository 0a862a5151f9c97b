"""The wheel under each version of Python that is here: installed, its commands, a part of the suite.

    python3.11 .. python3.14, on the PATH or kept by pyenv  -->  an environment each  -->  `make test-pythons`

`python -m tests.release.pythons --tools PYTHON [PATHS]`; with paths these are run, and not the part below.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.release.__main__ import ROOT, SUITE_TIMEOUT_S, Report, say
from tests.release.builds import clone_of, commit_of
from tests.release.installed import Environment, check_commands, copy_tests, extras_without_torch, run_suite
from tests.release.programs import output_of

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
PART: Final = (
    *("tests/backends", "tests/billing", "tests/prefix_index"),
    *(f"tests/gateway/{name}" for name in ("edge", "queueing", "scheduling", "serving", "tracing", "workers")),
    *(f"tests/gateway/test_{name}.py" for name in ("admin", "config", "limits", "relay", "settling")),
)
"""What is nearest to the interpreter: the loop, sockets, processes, typing and configuration, money, the index."""


def pythons() -> dict[str, Path]:
    """An interpreter for each version that is here, by `3.12`; one on the PATH that does not run is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {}
    for version in VERSIONS:
        on_path = shutil.which(f"python{version}")
        kept = sorted(root.glob(f"versions/{version}*/bin/python{version}"))
        for candidate in [*([Path(on_path)] if on_path else []), *kept]:
            if subprocess.run([candidate, "-m", "venv", "--help"], capture_output=True).returncode == 0:
                found[version] = candidate
                break
    return found


def main() -> int:
    """Exit status 1 where one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.pythons", description="The wheel under each Python.")
    parser.add_argument("--tools", type=Path, required=True, help="interpreter with requirements.txt and the builders")
    parser.add_argument("--workers", type=int, default=3, help="processes of the suite")
    parser.add_argument("paths", nargs="*", default=PART, help="parts of the suite; no file that needs torch")
    given = parser.parse_args()
    here, report = pythons(), Report()
    say(f"here: {', '.join(here)}; not here: {', '.join(v for v in VERSIONS if v not in here) or 'none'}")
    with tempfile.TemporaryDirectory(prefix="prefixgate-pythons-") as name:
        folder, tools = Path(name).resolve(), given.tools.absolute()
        clone_of(commit_of(ROOT), folder / "one")
        output_of(*(tools, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, folder / "one"), cwd=folder)
        (wheel,) = folder.glob("*.whl")
        copy_tests(folder / "one", folder / "checkout")

        def tested(base: Path, words: list[str]) -> None:
            environment = Environment(folder / "environment", tools)
            environment.make(base)
            environment.install(f"{wheel}[{','.join(extras_without_torch(folder / 'one'))}]")
            check_commands(environment, wheel.name.split("-")[1], folder)
            environment.install(f"{wheel}[dev]")
            words.append(run_suite(environment, folder / "checkout", given.workers, given.paths, SUITE_TIMEOUT_S))

        for version, base in here.items():
            report.run(version, lambda words, base=base: tested(base, words))  # type: ignore[misc]  # bound at once
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
