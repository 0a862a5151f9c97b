"""For all tests: no property test is a test of the machine's speed."""

from hypothesis import settings

settings.register_profile("prefixgate", deadline=None)
settings.load_profile("prefixgate")
