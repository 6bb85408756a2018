"""What all tests share: the seed. Fixtures that need Spark are in tests/spark/conftest.py."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No test may fail because the machine is busy; pytest-timeout ends what hangs.
settings.register_profile("updraft", deadline=None)
settings.load_profile("updraft")


@pytest.fixture(scope="session")
def seed() -> int:
    """Seed of everything random in a test; pytest shows the line below when the test fails."""
    value = int(os.environ.get("UPDRAFT_SEED", "20240607"))
    print(f"UPDRAFT_SEED={value}")  # noqa: T201
    return value
