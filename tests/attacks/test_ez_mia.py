import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from unseen.attacks.ez_mia import ErrorZone
from unseen.signals.base import Observations
from unseen.signals.text import CommonText, SameText
from unseen.signals.token_stats import FirstChoices, TokenStatistics
from unseen.targets.access import Access
from unseen.types import TokenStats

CHOICES, TARGET = FirstChoices(), TokenStatistics()
REFERENCE = TokenStatistics(of="reference")
SAME = SameText(of="reference")
ALIKE = CommonText(9, same_tokens=True)

Make = Callable[..., TokenStats]
See = Callable[..., Observations]


def slow(
    target: Sequence[float], reference: Sequence[float], rank: Sequence[int] | None, e: float
) -> float:
    risen = fallen = 0.0
    for t in range(len(target)):
        if rank is not None and rank[t] == 0:
            continue
        difference = target[t] - reference[t]
        if difference > 0:
            risen += difference
        else:
            fallen += -difference
    return math.log((risen + e) / (fallen + e))


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("e", [0.1, 2.0])
def test_equals_the_formula(observed: See, tokens: Make, n: int, e: float) -> None:
    rng = np.random.default_rng(n)
    target, reference = -rng.exponential(1, size=n), -rng.exponential(1.3, size=n)
    rank = rng.integers(0, 3, size=n)
    rank[0] = 1
    own = tokens(target)
    seen = observed(
        {
            CHOICES: {"a": replace(own, rank=rank.astype(np.int32))},
            TARGET: {"a": own},
            REFERENCE: {"a": tokens(reference)},
            SAME: {"a": ALIKE},
        }
    )
    both = target.tolist(), reference.tolist()
    (errors,) = ErrorZone(smoothing=e).score(seen).values
    (everything,) = ErrorZone(tokens="all", smoothing=e).score(seen).values
    assert errors == pytest.approx(slow(*both, rank.tolist(), e), abs=1e-12)
    assert everything == pytest.approx(slow(*both, None, e), abs=1e-12)


def test_where_nothing_moved_it_says_nothing(observed: See, tokens: Make) -> None:
    flat = tokens([-2.0, -1.0])
    seen = observed({TARGET: {"a": flat}, REFERENCE: {"a": flat}, SAME: {"a": ALIKE}})
    assert ErrorZone(tokens="all").score(seen).values.tolist() == [0.0]


def test_without_an_error_all_tokens_count(observed: See, tokens: Make) -> None:
    own, before = tokens([-0.1, -0.2]), tokens([-1.0, -1.0])
    ranked = replace(own, rank=np.zeros(2, dtype=np.int32))
    common = {REFERENCE: {"a": before}, SAME: {"a": ALIKE}}
    (remembered,) = ErrorZone().score(observed({CHOICES: {"a": ranked}, **common})).values
    assert remembered == pytest.approx(math.log(1.8 / 0.1))
    guessed = {CHOICES: {"a": ranked}, REFERENCE: {"a": own}, SAME: {"a": ALIKE}}
    assert ErrorZone().score(observed(guessed)).values.tolist() == [0.0], "anybody would guess it"


def test_first_choices_are_needed_unless_all_tokens_are_asked_for(
    observed: See, tokens: Make
) -> None:
    own, before = tokens([-0.1, -0.2]), tokens([-1.0, -1.0])
    common = {REFERENCE: {"a": before}, SAME: {"a": ALIKE}}
    unranked = ErrorZone().score(observed({CHOICES: {"a": own}, **common}))
    assert unranked.unscored == {"a": "the target does not give its first choices"}
    (value,) = ErrorZone(tokens="all").score(observed({TARGET: {"a": own}, **common})).values
    assert value == pytest.approx(math.log(1.8 / 0.1))


def test_other_tokens_and_no_tokens_are_unscored(observed: See, tokens: Make) -> None:
    pair = tokens([-1.0, -2.0])
    seen = observed(
        {
            TARGET: {"other": pair, "none": tokens([]), "impossible": tokens([-1.0, -np.inf])},
            REFERENCE: {"other": pair, "none": tokens([]), "impossible": pair},
            SAME: {"other": CommonText(9), "none": ALIKE, "impossible": ALIKE},
        }
    )
    assert ErrorZone(tokens="all").score(seen).unscored == {
        "other": "the two models cut this record into other tokens",
        "none": "no token to score",
        "impossible": "a token has no finite value",
    }


def test_all_tokens_need_log_probabilities_alone() -> None:
    assert ErrorZone().access == Access.LOGIT
    assert ErrorZone(tokens="all").access == Access.LOGPROB
    assert ErrorZone.access == Access.LOGIT
