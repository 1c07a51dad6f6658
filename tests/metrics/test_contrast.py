from __future__ import annotations

import numpy as np
import pytest

from unseen.metrics.contrast import contrasts


def test_it_is_medians_pairs_and_ranks() -> None:
    rng = np.random.default_rng(0)
    values = {
        "more": np.r_[rng.normal(2, 1, 30), rng.normal(0, 1, 90)],
        "same": rng.normal(size=120),
    }
    picked = np.arange(120) < 30
    found = contrasts(values, picked)
    slow = np.mean([
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in values["more"][:30]
        for b in values["more"][30:]
    ])  # fmt: skip
    assert found["more"].auc == pytest.approx(slow)
    assert found["more"].picked == np.median(values["more"][:30])
    assert found["more"].p_holm < 0.001 < found["same"].p_holm


def test_a_constant_feature_says_nothing() -> None:
    found = contrasts({"one": np.ones(20)}, np.arange(20) < 10)
    assert found["one"].p_holm == 1
    assert found["one"].auc == 0.5


def test_nobody_picked_or_everybody() -> None:
    assert contrasts({"one": np.ones(4)}, np.zeros(4, bool)) == {}
    assert contrasts({"one": np.ones(4)}, np.ones(4, bool)) == {}
