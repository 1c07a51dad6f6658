import numpy as np
import pytest

from unseen.attacks import create, label
from unseen.attacks.g_drift_stability import ParaphraseStability
from unseen.errors import ConfigError
from unseen.signals.base import Observations
from unseen.signals.paraphrased import Drifts, ParaphrasedDrift

SIGNAL = ParaphrasedDrift()


def drifts(*moved: float, before: float = 0.5) -> Drifts:
    n = len(moved)
    return Drifts(
        loss=np.ones(n), loss_after=np.full(n, 2.0), projection=np.full(n, before),
        projection_after=before + np.array(moved), drift=np.ones(n), norm=np.full(n, 40.0),
    )  # fmt: skip


def scored(**values: Drifts):
    return ParaphraseStability().score(Observations(tuple(values), {SIGNAL: values}))


def slow(moved: list[float]) -> float:
    """-(standard deviation with n - 1) / (mean of absolute values), number by number."""
    mean = sum(moved) / len(moved)
    variance = sum((one - mean) ** 2 for one in moved) / (len(moved) - 1)
    return -(variance**0.5) / (sum(abs(one) for one in moved) / len(moved))


def test_the_score_is_how_steady_the_drift_is_relative_to_its_size() -> None:
    rows = {
        "a": [0.986, 0.985, 0.985],
        "b": [0.046, 0.09, 0.075],
        "c": [1.0, -1.0],
        "d": [-3, -3.1],
    }
    found = scored(**{name: drifts(*moved) for name, moved in rows.items()})
    assert dict(zip(found.ids, found.values.tolist(), strict=True)) == pytest.approx(
        {name: slow(moved) for name, moved in rows.items()}
    )
    member, nonmember = found.values[:2]
    assert member > nonmember, "as in Table 3"


def test_what_does_not_move_or_is_not_finite_is_a_reason() -> None:
    found = scored(a=drifts(0.0, 0.0, before=0.0), b=drifts(np.nan, 1.0), c=drifts(1.0))
    assert not found.ids
    assert found.unscored["a"] == found.unscored["c"] == "the step does not move the projection"
    assert set(found.unscored) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("g_drift_stability[paraphrases=0]", "got paraphrases=0, expected at least 1"),
        ("g_drift_stability[source=guess]", "expected 'file' or 'generate'"),
        ("g_drift_stability[eta=-1]", "expected a number of at least 0"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create(spec)


def test_its_signal_has_its_fields() -> None:
    spec = "g_drift_stability[eta=0.001,state=before,paraphrases=4,source=generate]"
    attack = create(spec)
    assert label(attack) == spec
    assert attack.signals() == (
        ParaphrasedDrift(eta=0.001, state="before", paraphrases=4, source="generate"),
    )
