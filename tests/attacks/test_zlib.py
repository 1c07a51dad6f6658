import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.zlib import Zlib
from unseen.signals.base import Observations
from unseen.signals.text import CompressedSize, Size
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats

TEXTS = {"a": "one two three " * 20, "b": "Zürich, 東京", "c": "x"}


def slow(logprobs: Sequence[float], text: str, *, summed: bool) -> float:
    total = 0.0
    for logprob in logprobs:
        total += logprob
    return (total if summed else total / len(logprobs)) / len(zlib.compress(text.encode("utf-8")))


def size(text: str) -> Size:
    return Size(len(text.encode()), len(zlib.compress(text.encode())))


@pytest.mark.parametrize("length", ["mean", "sum"])
def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats], length: str
) -> None:
    rng = np.random.default_rng(2)
    drawn = {
        id_: (-rng.exponential(2, size=n)).tolist() for id_, n in (("a", 60), ("b", 9), ("c", 1))
    }
    seen = observed(
        {
            TokenStatistics(): {i: tokens(x) for i, x in drawn.items()},
            CompressedSize(): {i: size(text) for i, text in TEXTS.items()},
        }
    )
    scores = Zlib(length=length).score(seen)
    assert scores.ids == ("a", "b", "c")
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(drawn[id_], TEXTS[id_], summed=length == "sum"))


def test_either_signal_can_be_missing(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed(
        {
            TokenStatistics(): {"a": "too long", "b": tokens([-1.0]), "c": tokens([-np.inf])},
            CompressedSize(): {"a": size("a"), "b": "no assistant turn", "c": size("c")},
        }
    )
    assert Zlib().score(seen).unscored == {
        "a": "too long",
        "b": "no assistant turn",
        "c": "the formula has no finite value here",
    }


def test_refuses_another_length() -> None:
    with pytest.raises(ValueError, match=r"got length='max', expected 'mean' or 'sum'"):
        Zlib(length="max")  # type: ignore[arg-type]
