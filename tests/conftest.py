"""For all tests: no property test is a test of the machine's speed, and all of them together take minutes.

HYPOTHESIS_PROFILE=thorough tries ten times as many examples, where a test does not say how many.
"""

import os

from hypothesis import settings

settings.register_profile("prefixgate", deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=600)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "prefixgate"))
