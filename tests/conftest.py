"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real text sets, which is no part of the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("UNSEEN_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip("no real data: set UNSEEN_TEST_DATA to a folder that has trec.jsonl and others")
    return folder
