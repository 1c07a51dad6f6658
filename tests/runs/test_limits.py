from __future__ import annotations

import pytest

from unseen.errors import ConfigError
from unseen.runs.config import configure
from unseen.runs.limits import parse


@pytest.mark.parametrize(
    ("text", "name", "at_most"),
    [
        ("auc=0.6", "auc", 0.6),
        ("auc:0.6", "auc", 0.6),
        ("tpr@fpr=0.01=0.05", "tpr@fpr=0.01", 0.05),
        ("tpr@fpr=1e-3:0.05", "tpr@fpr=0.001", 0.05),
        ("tpr@fpr=0.01@min_k[k=0.1]=0.05", "tpr@fpr=0.01@min_k[k=0.1]", 0.05),
        ("auc@min_k[k=0.1,x=2] = 0.6", "auc@min_k[k=0.1,x=2]", 0.6),
        ("headline=0.2", "headline", 0.2),
        ("advantage@loss=0.1", "advantage@loss", 0.1),
    ],
)
def test_limits_are_read(text, name, at_most) -> None:
    (limit,) = parse([text])
    assert (limit.name, limit.at_most) == (name, at_most)
    metric = text[: max(text.rfind("="), text.rfind(":"))]
    assert parse({metric: at_most}) == (limit,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("auc", "holds no limit"),
        ("acu=0.6", "expected auc"),
        ("auc=high", "expected a number"),
        ("auc=nan", "expected a number"),
        ("auc=0.5", "above 0.5"),
        ("auc=60", "below 1"),
        ("tpr=0.05", "tpr@fpr="),
        ("tpr@fpr=0.01", "tpr@fpr=0.01=0.05"),
        ("tpr@fpr=1=0.05", "between 0 and 1"),
        ("tpr@fpr=x=0.05", "expected a number"),
        ("tpr@fpr=0.05=0.05", "above 0.05"),
        ("advantage=0", "above 0"),
        ("auc@fpr=0.1=0.6", "only tpr"),
        ("headline@loss=0.6", "by itself"),
        ("auc@min_k[k=0.1]", "expected a number"),
        ("=0.6", "holds no limit"),
        ("", "holds no limit"),
    ],
)
def test_wrong_limits_are_explained(text, words) -> None:
    with pytest.raises(ConfigError, match="the gate is wrong") as caught:
        parse([text])
    assert words in str(caught.value)
    assert "METRIC=VALUE" in caught.value.fix


def test_all_faults_at_once_and_nothing_twice() -> None:
    with pytest.raises(ConfigError, match=r"'auc'.*acu.*auc stands twice"):
        parse(["auc", "acu=0.6", "auc=0.6", "auc=0.7"])


def test_flag_mapping_and_text_are_the_same_choice() -> None:
    wanted = ("auc=0.6", "tpr@fpr=0.01=0.05")
    for given in (wanted, {"auc": 0.6, "tpr@fpr=0.01": 0.05}, "auc=0.6, tpr@fpr=0.01=0.05"):
        assert configure(gate=given).gate == wanted
    with pytest.raises(ConfigError, match="expected auc"):
        configure(gate={"acu": 0.6})
