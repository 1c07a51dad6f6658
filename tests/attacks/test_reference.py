from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.reference import Reference
from unseen.signals.base import Observations
from unseen.signals.text import CommonText, SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats

TARGET = TokenStatistics()
REFERENCE = TokenStatistics(of="reference")
SAME = SameText(of="reference")


def alike(*ids: str) -> dict[str, CommonText]:
    return {id_: CommonText(9) for id_ in ids}


def slow(target: Sequence[float], reference: Sequence[float]) -> float:
    difference = 0.0
    for logprob in target:
        difference += logprob
    for logprob in reference:
        difference -= logprob
    return difference / len(target)


def test_equals_the_formula_with_other_tokens(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    rng = np.random.default_rng(5)
    target = {f"r{n}": (-rng.exponential(1, size=n)).tolist() for n in (1, 5, 40)}
    reference = {id_: (-rng.exponential(2, size=2 * len(x))).tolist() for id_, x in target.items()}
    seen = observed(
        {
            TARGET: {i: tokens(x) for i, x in target.items()},
            REFERENCE: {i: tokens(x) for i, x in reference.items()},
            SAME: alike(*target),
        }
    )
    scores = Reference().score(seen)
    assert scores.ids == tuple(target)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(target[id_], reference[id_]), rel=1e-12)


def test_with_one_tokenizer_it_is_the_difference_of_the_means(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    target, reference = tokens([-1.0, -2.0, -6.0]), tokens([-4.0, -4.0, -4.0])
    seen = observed({TARGET: {"a": target}, REFERENCE: {"a": reference}, SAME: alike("a")})
    assert Reference().score(seen).values.tolist() == [target.logprob.mean() + 4.0]


def test_a_finer_tokenizer_of_the_reference_changes_nothing(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    common = {TARGET: {"a": tokens([-3.0])}, SAME: alike("a")}
    (one,) = Reference().score(observed(common | {REFERENCE: {"a": tokens([-4.0])}})).values
    (other,) = Reference().score(observed(common | {REFERENCE: {"a": tokens([-1.0] * 4)}})).values
    assert one == other == 1.0


def test_infinite_and_missing_are_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed(
        {
            TARGET: {
                "both": tokens([-np.inf]),
                "target": tokens([-np.inf]),
                "reference": tokens([-1.0]),
                "missing": tokens([-1.0]),
                "none": tokens([]),
            },
            REFERENCE: {
                "both": tokens([-np.inf]),
                "target": tokens([-1.0]),
                "reference": tokens([-np.inf]),
                "missing": "too long",
                "none": tokens([-1.0]),
            },
            SAME: alike("both", "target", "reference", "missing", "none"),
        }
    )
    infinite = "the formula has no finite value here"
    assert Reference().score(seen).unscored == {
        "both": infinite,
        "target": infinite,
        "reference": infinite,
        "missing": "too long",
        "none": "no token to score",
    }
    alone = Reference().score(observed({TARGET: {"a": tokens([-1.0])}}))
    assert alone.unscored == {"a": "this signal was not measured"}


def test_log_probabilities_of_other_text_are_not_compared(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    both = {"same": tokens([-1.0, -2.0]), "cut": tokens([-1.0, -2.0])}
    seen = observed({TARGET: both, REFERENCE: both, SAME: {**alike("same"), "cut": "other parts"}})
    scores = Reference().score(seen)
    assert (scores.ids, scores.unscored) == (("same",), {"cut": "other parts"})
