"""The collector of a serving process."""

import subprocess
import sys

_SCRIPT = """
import gc
from gateway.serving.collector import THRESHOLDS, calm_collector
calm_collector()
assert gc.get_threshold() == THRESHOLDS
assert gc.get_freeze_count() > 10_000
assert gc.isenabled()
"""


def test_what_is_loaded_is_left_alone_and_the_rest_is_looked_through_seldom() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
