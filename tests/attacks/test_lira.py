import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from unseen import attacks
from unseen.attacks.lira import LikelihoodRatio, _log_cdf
from unseen.signals.base import Observations
from unseen.signals.likelihoods import (
    Likelihoods,
    Population,
    PopulationLikelihoods,
    TextLikelihood,
)

Rows = Sequence[tuple[int, float, bool]]  # tokens, sum of log-probabilities, inside; a shadow each


def likelihoods(rows: Rows) -> Likelihoods:
    return Likelihoods(
        np.arange(1, len(rows) + 1),
        np.array([inside for _, _, inside in rows], dtype=bool),
        np.array([n for n, _, _ in rows]),
        np.array([total for _, total, _ in rows]),
        np.array([2 * total + 1 for _, total, _ in rows]),
    )


def population(texts: Sequence[Rows]) -> Population:
    each = [likelihoods(rows) for rows in texts]
    return Population(
        np.repeat(np.arange(len(texts)), [len(rows) for rows in texts]),
        *(
            np.concatenate([getattr(one, name) for one in each])
            for name in ("model", "inside", "n_tokens", "logprob", "odds")
        ),
    )


def seen_by(
    observed: Callable[..., Observations],
    target: Rows,
    shadows: Rows,
    own: Sequence[Rows],
    theirs: Sequence[Rows],
    attack: LikelihoodRatio | None = None,
) -> Observations:
    attack = attack or LikelihoodRatio()
    values = (likelihoods(target), likelihoods(shadows), population(own), population(theirs))
    return observed({s: {"a": v} for s, v in zip(attack.signals(), values, strict=True)})


def slow(phi: float, out: Sequence[float], texts: Sequence[Sequence[float]], own_sd: int) -> float:
    """The formula, with the probabilities themselves."""
    if len(out) >= own_sd:
        sigma = statistics.stdev(out)
    else:
        squares = [(x - statistics.mean(text)) ** 2 for text in texts for x in text]
        sigma = math.sqrt(sum(squares) / (len(squares) - len(texts)))
    z = (phi - statistics.mean(out)) / sigma
    return math.log(norm.cdf(z) / norm.sf(z))


OWN: list[Rows] = [[(4, -8.0, False)], [(5, -5.0, False)]]
THEIRS: list[Rows] = [
    [(4, -9.0, False), (4, -12.0, False), (4, -1.0, True)],
    [(5, -7.0, False), (5, -6.5, False), (5, -8.0, False)],
]
SHADOWS: Rows = [(2, -6.0, False), (2, -5.0, False), (2, -1.0, True)]


@pytest.mark.parametrize("own_sd", [64, 2])
def test_equals_the_formula(observed: Callable[..., Observations], own_sd: int) -> None:
    seen = seen_by(observed, [(2, -4.2, False)], SHADOWS, OWN, THEIRS)
    texts = [[-9 / 4, -12 / 4], [-7 / 5, -6.5 / 5, -8 / 5]]
    scores = LikelihoodRatio(own_sd=own_sd).score(seen)
    assert scores.values.item() == pytest.approx(slow(-2.1, [-3.0, -2.5], texts, own_sd), rel=1e-12)


def test_odds_are_summed(observed: Callable[..., Observations]) -> None:
    attack = LikelihoodRatio(phi="odds")
    seen = seen_by(observed, [(2, -4.2, False)], SHADOWS, OWN, THEIRS, attack)
    texts = [[-17.0, -23.0], [-13.0, -12.0, -15.0]]
    expected = slow(-7.4, [-11.0, -9.0], texts, 64)
    assert attack.score(seen).values.item() == pytest.approx(expected, rel=1e-12)


def test_shadows_with_other_tokens_are_compared_as_text(
    observed: Callable[..., Observations],
) -> None:
    """Sums are of the same text; per token of the target they are of one unit."""
    other = [(3 * n, total, inside) for n, total, inside in SHADOWS]
    texts = [[(3 * n, total, inside) for n, total, inside in rows] for rows in THEIRS]
    one, same = (
        LikelihoodRatio().score(seen_by(observed, [(2, -4.2, False)], rows, OWN, them)).values
        for rows, them in ((SHADOWS, THEIRS), (other, texts))
    )
    assert one == same


def test_the_probability_does_not_saturate() -> None:
    for z in (-60.0, -30.0, -25.1, -24.9, -8.0, -1.0, 0.0, 1.0, 8.0):
        assert _log_cdf(z) == pytest.approx(norm.logcdf(z), rel=1e-12)
    odds = [_log_cdf(z) - _log_cdf(-z) for z in (-400.0, -40.0, 9.0, 40.0, 41.0, 400.0)]
    assert odds == sorted(set(odds))


def test_what_cannot_be_compared_has_a_reason(observed: Callable[..., Observations]) -> None:
    def reason(shadows: Rows, texts: Sequence[Rows]) -> str:
        seen = seen_by(observed, [(2, -4.0, False)], shadows, OWN, texts)
        (why,) = LikelihoodRatio().score(seen).unscored.values()
        return why

    assert "every shadow was trained on this record" in reason([(2, -6.0, True)], THEIRS)
    assert "one shadow shows no spread" in reason(SHADOWS[:1], [rows[:1] for rows in THEIRS])
    assert "no spread" in reason(SHADOWS, [[(4, -9.0, False)] * 2] * 2)
    assert "no finite likelihood" in reason([(2, -np.inf, False)], THEIRS)


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("lira[phi=odds,population=9]")
    assert attack.signals() == (
        TextLikelihood(),
        TextLikelihood(of="shadow", same_tokens=True),
        PopulationLikelihoods(size=9),
        PopulationLikelihoods(of="shadow", size=9, same_tokens=True),
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"phi": "logit"}, "got phi='logit', expected one of mean, odds"),
        ({"own_sd": 1}, "got own_sd=1, expected at least 2"),
        ({"population": 0}, "got population=0, expected at least 1"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LikelihoodRatio(**fields)
