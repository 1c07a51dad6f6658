from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.base import line
from unseen.attacks.petal import Petal
from unseen.errors import UnscorableError
from unseen.signals.base import SURROGATE, Observations
from unseen.signals.probed import MaskedProbes, ProbedLikelihoods
from unseen.signals.similarity import ProbedSimilarity, Similarities, TokenSimilarity
from unseen.signals.text import CommonText, SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import TokenStats

S_TARGET, S_SURROGATE, L_SURROGATE = [-1.0, 0.0, -2.0], [-3.0, 0.0, -1.0], [-6.0, -0.5, -4.0]


def slow_line(s: list[float], logprobs: list[float]) -> tuple[float, float]:
    n = len(s)
    mean_s, mean_l = sum(s) / n, sum(logprobs) / n
    covariance = sum((x - mean_s) * (y - mean_l) for x, y in zip(s, logprobs, strict=True))
    slope = covariance / sum((x - mean_s) ** 2 for x in s)
    return slope, mean_l - slope * mean_s


@pytest.fixture
def rest(tokens: Callable[..., TokenStats]) -> dict[Any, Any]:
    return {
        TokenSimilarity(of=SURROGATE): {"a": Similarities(np.array(S_SURROGATE))},
        TokenStatistics(of=SURROGATE): {"a": tokens(L_SURROGATE)},
        SameText(of=SURROGATE): {"a": CommonText(9)},
    }


def test_equals_the_formula(observed: Callable[..., Observations], rest: dict[Any, Any]) -> None:
    seen = observed({TokenSimilarity(): {"a": Similarities(np.array(S_TARGET))}} | rest)
    slope, intercept = slow_line(S_SURROGATE, L_SURROGATE)
    assert line(np.array(S_SURROGATE), np.array(L_SURROGATE)) == pytest.approx((slope, intercept))
    assert (slope, intercept) == pytest.approx(np.polyfit(S_SURROGATE, L_SURROGATE, 1))
    expected = sum(slope * s + intercept for s in S_TARGET) / 3
    assert Petal().score(seen).values.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "expected"), [({}, min), ({"aggregate": "mean", "unit": "sum"}, None)]
)
def test_probing_guesses_likelihoods_with_the_line_of_the_text(
    observed: Callable[..., Observations], rest: dict, fields: dict, expected: Any
) -> None:
    attack = attacks.find("icp_sp")(likelihood="petal", **fields)
    probed = ProbedSimilarity(shown=MaskedProbes())
    assert attack.access == Access.LABEL
    assert attacks.find("icp_sp")().access == Access.LOGPROB
    sums = ProbedLikelihoods(3, -3.0, np.array([-1.0, -2.5]))
    slope, intercept = slow_line(S_SURROGATE, L_SURROGATE)
    plain, *after = (slope * s + 3 * intercept for s in (-3.0, -1.0, -2.5))
    gains = [plain - one for one in after]
    right = min(gains) / 3 if expected is min else sum(gains) / 2
    (value,) = attack.score(observed({probed: {"a": sums}} | rest)).values
    assert value == pytest.approx(right)


def test_where_no_line_can_be_drawn_there_is_a_reason() -> None:
    for s, logprobs, reason in (
        ([-1.0, -1.0], [-1.0, -2.0], "all equally like the text"),
        ([-1.0], [-1.0], "all equally like the text"),
        ([], [], "no token to score"),
        ([-1.0, np.nan], [-1.0, -2.0], "no finite value"),
        ([-1.0, -2.0], [-1.0, -np.inf], "no finite value"),
    ):
        with pytest.raises(UnscorableError, match=reason):
            line(np.array(s), np.array(logprobs))


def test_fields_say_what_is_measured() -> None:
    assert attacks.create("petal[similarity=minilm]").signals()[0] == TokenSimilarity(
        encoder="minilm"
    )
    with pytest.raises(ValueError, match="got no encoder"):
        Petal(similarity="")
    probes = attacks.create("icp_ref[likelihood=petal,similarity=minilm]").signals()
    assert [type(signal).__name__ for signal in probes] == [
        "ProbedSimilarity", "TokenSimilarity", "TokenStatistics", "SameText",
    ]  # fmt: skip
    assert probes[0].shown.encoder == "tfidf"
