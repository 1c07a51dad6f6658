from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.wbc import WINDOWS, WindowComparison
from unseen.signals.base import Observations
from unseen.signals.text import CommonText, SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats

TARGET = TokenStatistics()
REFERENCE = TokenStatistics(of="reference")
SAME = SameText(of="reference")
ALIKE = CommonText(9, same_tokens=True)

Make = Callable[..., TokenStats]
See = Callable[..., Observations]


def slow(target: Sequence[float], reference: Sequence[float]) -> float:
    shares = []
    for w in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40):
        if w > len(target):
            continue
        votes = []
        for start in range(len(target) - w + 1):
            loss, loss_of_reference = 0.0, 0.0
            for t in range(start, start + w):
                loss -= target[t]
                loss_of_reference -= reference[t]
            votes.append(1 if loss_of_reference > loss else 0)
        shares.append(sum(votes) / len(votes))
    return sum(shares) / len(shares)


@pytest.mark.parametrize("n", [2, 3, 5, 40, 41, 200])
def test_equals_the_formula(observed: See, tokens: Make, n: int) -> None:
    rng = np.random.default_rng(n)
    target = (-rng.exponential(1, size=n)).tolist()
    reference = (-rng.exponential(1.1, size=n)).tolist()
    seen = observed(
        {
            TARGET: {"a": tokens(target, dtype=np.float32)},
            REFERENCE: {"a": tokens(reference, dtype=np.float32)},
            SAME: {"a": ALIKE},
        }
    )
    (value,) = WindowComparison().score(seen).values
    assert value == pytest.approx(slow(target, reference), abs=1e-12)


def test_models_that_are_equal_get_no_vote_and_one_that_knows_more_gets_all(
    observed: See, tokens: Make
) -> None:
    flat, better = tokens([-2.0] * 50), tokens([-1.0] * 50)
    seen = observed(
        {
            TARGET: {"equal": flat, "better": better},
            REFERENCE: {"equal": flat, "better": flat},
            SAME: {"equal": ALIKE, "better": ALIKE},
        }
    )
    assert WindowComparison().score(seen).values.tolist() == [0.0, 1.0]


def test_one_large_difference_is_one_vote(observed: See, tokens: Make) -> None:
    reference = np.full(60, -2.0)
    small, large = reference - 0.01, reference - 0.01
    small[30] += 0.03
    large[30] += 0.03
    large[31:40] -= 1.9
    seen = observed(
        {
            TARGET: {"small": tokens(small), "large": tokens(large)},
            REFERENCE: {"small": tokens(reference), "large": tokens(reference)},
            SAME: {"small": ALIKE, "large": ALIKE},
        }
    )
    small_score, large_score = WindowComparison().score(seen).values
    assert 0 < large_score < small_score < 0.1


def test_what_has_no_windows_or_other_tokens_is_unscored(observed: See, tokens: Make) -> None:
    pair, one = tokens([-1.0, -2.0]), tokens([-1.0])
    seen = observed(
        {
            TARGET: {"one": one, "other": pair, "fewer": pair, "none": tokens([]), "cut": pair},
            REFERENCE: {"one": one, "other": pair, "fewer": one, "none": tokens([]), "cut": pair},
            SAME: {
                "one": ALIKE,
                "other": CommonText(9),
                "fewer": ALIKE,
                "none": ALIKE,
                "cut": "other parts",
            },
        }
    )
    scores = WindowComparison().score(seen)
    assert scores.ids == ()
    assert scores.unscored == {
        "one": f"fewer tokens than the shortest window of {WINDOWS[0]}",
        "other": "the two models cut this record into other tokens",
        "fewer": "the two models cut this record into other tokens",
        "none": "no token to score",
        "cut": "other parts",
    }


@pytest.mark.parametrize(("own", "others"), [(-np.inf, -1.0), (-1.0, -np.inf), (-np.inf, -np.inf)])
def test_impossible_tokens_give_a_reason_and_no_vote(
    observed: See, tokens: Make, own: float, others: float
) -> None:
    seen = observed(
        {
            TARGET: {"a": tokens([-1.0, own, -1.0])},
            REFERENCE: {"a": tokens([-1.0, others, -1.0])},
            SAME: {"a": ALIKE},
        }
    )
    with np.errstate(invalid="ignore"):
        assert WindowComparison().score(seen).unscored == {"a": "a token has no finite value"}
