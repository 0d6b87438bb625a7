"""Settings of all tests."""

from hypothesis import settings

# A busy machine must not fail a property by being slow: pytest's own time-out bounds a test.
settings.register_profile("corpusmill", deadline=None)
settings.load_profile("corpusmill")
