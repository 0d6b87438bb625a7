"""Settings of all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a property by being slow: pytest's own time-out bounds a test.
settings.register_profile("corpusmill", deadline=None)
settings.load_profile("corpusmill")


SKIPS = Path(__file__).parent / "expected_skips.txt"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skip that is not on the committed list is a failure: a test must not drop out unseen. A listed test that
    ran is named too, so that the list can be kept to what CI lacks."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    allowed = {line.split(" # ")[0].strip() for line in SKIPS.read_text("utf-8").splitlines() if line.strip()}
    skipped = {report.nodeid for report in reporter.stats.get("skipped", [])}
    ran = sorted(allowed & {report.nodeid for report in reporter.stats.get("passed", [])})
    if ran:
        reporter.write_line(f"in {SKIPS.name}, but not skipped here: {', '.join(ran)}", yellow=True)
    if unexpected := sorted(skipped - allowed):
        reporter.write_line(f"skipped but not in {SKIPS.name}: {', '.join(unexpected)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
