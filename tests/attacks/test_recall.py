from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.recall import Recall
from unseen.errors import UnscorableError
from unseen.signals.base import Materials, Observations
from unseen.signals.prefixed import PrefixedStatistics
from unseen.signals.token_stats import TokenStatistics
from unseen.types import Encoded, Record, TokenStats, Turn

PREFIXED = PrefixedStatistics(known="nonmembers", shots=7)


def slow(plain: Sequence[float], after: Sequence[float]) -> float:
    return (sum(after) / len(after)) / (sum(plain) / len(plain))


def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    rng = np.random.default_rng(6)
    plain = {f"r{n}": (-rng.exponential(1, size=n)).tolist() for n in (1, 5, 40)}
    after = {id_: (-rng.exponential(1, size=len(x))).tolist() for id_, x in plain.items()}
    seen = observed(
        {
            TokenStatistics(): {i: tokens(x) for i, x in plain.items()},
            PREFIXED: {i: tokens(x) for i, x in after.items()},
        }
    )
    scores = Recall().score(seen)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(plain[id_], after[id_]), rel=1e-12)


def test_who_loses_more_is_the_member(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed(
        {
            TokenStatistics(): {"member": tokens([-1.0]), "other": tokens([-1.0])},
            PREFIXED: {"member": tokens([-1.5]), "other": tokens([-0.9])},
        }
    )
    assert Recall().score(seen).values.tolist() == [1.5, 0.9]


def test_what_has_no_ratio_is_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    plain = {
        "certain": tokens([0.0]),
        "impossible": tokens([-np.inf]),
        "after": tokens([-1.0]),
        "missing": tokens([-1.0]),
    }
    after = {
        "certain": tokens([-1.0]),
        "impossible": tokens([-np.inf]),
        "after": tokens([-np.inf]),
        "missing": "no known nonmembers are set aside for the prefix",
    }
    scores = Recall().score(observed({TokenStatistics(): plain, PREFIXED: after}))
    assert scores.ids == ()
    assert scores.unscored == {
        "certain": "the model is certain of every token: a ratio to its log-probability is noise",
        "impossible": "a token is impossible under the model",
        "after": "the formula has no finite value here",
        "missing": "no known nonmembers are set aside for the prefix",
    }


def test_measures_as_many_shots_as_asked(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    assert Recall(shots=3).signals()[1] == PrefixedStatistics(known="nonmembers", shots=3)
    seen = observed({TokenStatistics(): {"a": tokens([-1.0])}, PREFIXED: {"a": tokens([-1.0])}})
    assert Recall(shots=3).score(seen).unscored == {"a": "this signal was not measured"}
    with pytest.raises(ValueError, match="got shots=0, expected at least 1"):
        Recall(shots=0)


class Changing:
    """An encoder that scores other tokens when records stand before."""

    tokenizer = None

    def __init__(self, scored_after: tuple[bool, ...]) -> None:
        self.scored_after = scored_after

    def encode(self, record: Record, *, before: Sequence[Record] = ()) -> Encoded:
        if len(before) > 1:
            reason = "does not fit"
            raise UnscorableError(reason)
        scored = self.scored_after if before else (False, True, True)
        return Encoded((9,) * len(before) + (5, 6, 7), np.array((False,) * len(before) + scored))

    def scored_text(self, record: Record) -> str:
        return ""


def test_numerator_and_denominator_have_the_same_tokens() -> None:
    record = Record("r", (Turn("text", "x"),))
    shots = (record, record)
    same = Materials(Changing((False, True, True)), known_nonmembers=shots)  # type: ignore[arg-type]
    (request,) = Recall(shots=2).signals()[1].ask(record, same).requests  # type: ignore[union-attr]
    assert request.context == (9, 5)
    assert request.continuation == (6, 7)
    for after in ((True, True, True), (False, True, False)):
        other = Materials(Changing(after), known_nonmembers=shots)  # type: ignore[arg-type]
        with pytest.raises(UnscorableError, match="changes the record when others stand before"):
            Recall(shots=2).signals()[1].ask(record, other)  # type: ignore[union-attr]
