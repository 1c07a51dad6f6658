from collections.abc import Callable

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.samia import Samia
from unseen.signals.base import Observations
from unseen.signals.recited import Recited, RecitedWords


def test_equals_the_formula(observed: Callable[..., Observations]) -> None:
    seen = observed(
        {RecitedWords(): {"a": Recited(np.array([0.5, 0.25, 0.0]), np.array([20, 30, 10]))}}
    )
    assert Samia().score(seen).values.tolist() == [0.25]
    assert Samia(zlib=True).score(seen).values.item() == pytest.approx((10 + 7.5 + 0) / 3)


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("samia[samples=3,prefix=0.3,zlib=True]")
    assert attack.signals() == (RecitedWords(samples=3, prefix=0.3),)


def test_it_runs_only_where_it_is_named() -> None:
    assert "samia" in attacks.everything()
    assert "samia" not in attacks.default()
