import math
from collections.abc import Callable

import numpy as np
import pytest

from unseen.attacks.base import Known, examples, mean_logprob, mean_of_lowest, ratio_to, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import Observations
from unseen.types import TokenStats


def test_every_record_is_scored_or_has_a_reason() -> None:
    def formula(id_: str) -> float:
        if id_ == "short":
            reason = "too short"
            raise UnscorableError(reason)
        return {"one": 1, "nan": math.nan, "inf": np.float64(1) / np.float64(0)}[id_]

    scores = score_each(Observations(("nan", "one", "short", "inf"), {}), formula)
    assert (scores.ids, scores.values.tolist()) == (("one",), [1.0])
    assert scores.unscored == {
        "nan": "the formula has no finite value here",
        "short": "too short",
        "inf": "the formula has no finite value here",
    }


def test_a_fault_in_a_formula_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        score_each(Observations(("a",), {}), lambda _: 1 / 0)


def test_no_records_are_no_scores(observed: Callable[..., Observations]) -> None:
    scores = score_each(Observations((), {}), lambda _: 1.0)
    assert (scores.ids, scores.values.shape, scores.unscored) == ((), (0,), {})


def test_mean_of_lowest() -> None:
    assert mean_of_lowest(np.array([3.0, 1.0, 2.0]), 0.7) == 1.5
    assert mean_of_lowest(np.array([3.0, 1.0, 2.0]), 0.1) == 1.0


def test_ratio_to(tokens: Callable[..., TokenStats]) -> None:
    assert ratio_to(mean_logprob(tokens([-1.0, -3.0])), -4.0) == 2.0
    for logprob in (0.0, 1e-9, -1e-7, -math.inf, math.nan):
        with pytest.raises(UnscorableError):
            ratio_to(logprob, -1.0)


def test_where_no_known_record_has_numbers_the_reason_is_theirs() -> None:
    def row(_: Observations, id_: str) -> np.ndarray:
        reason = "too short" if id_ == "c" else "no neighbours"
        raise UnscorableError(reason)

    known = Known(Observations(("a", "b", "c"), {}), np.array([True, False, True]))
    with pytest.raises(UnscorableError, match="no known record to learn from: no neighbours"):
        examples(known, row)
    with pytest.raises(UnscorableError, match="all members or all non-members"):
        examples(Known(known.observations, np.ones(3, dtype=bool)), lambda *_: np.zeros(1))
