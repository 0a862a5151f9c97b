"""Other people's programs to measure against, each in a virtual environment of its own under the cache.

The versions are those of `bench/peers/NAME.txt`; other versions are another environment, and an installation that did
not come to its end is made again.
"""

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from backends.reference.model_files import cache_dir

PEERS = Path(__file__).resolve().parent / "peers"


class PeerNotInstalled(Exception):
    """pip could not install a peer; the text is the last line it said."""


def peer_python(name: str) -> Path:
    """The interpreter of a peer's environment, which is made on first use. Raises PeerNotInstalled."""
    pins = PEERS / f"{name}.txt"
    home = cache_dir() / "peers" / f"{name}-{sha256(pins.read_bytes()).hexdigest()[:8]}"
    python, installed = home / "bin" / "python", home / "installed"
    if installed.exists():
        return python
    shutil.rmtree(home, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(home))
    _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(pins))
    installed.touch()
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise PeerNotInstalled(said[-1] if said else f"status {done.returncode}")
