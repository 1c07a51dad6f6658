from collections.abc import Callable

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression

from unseen.attacks.bag_of_words import BagOfWords
from unseen.attacks.base import Known, is_blind, is_fitted
from unseen.signals.base import Observations
from unseen.signals.text import WordCounts, words
from unseen.types import BoolArray, FloatArray, Record, Turn

COMMON = ("the", "of", "and", "to", "a", "in", "is", "it", "for", "on", "with", "as", "at", "by")


def drawn(n: int, seed: int, *, shift: float = 0.0) -> tuple[list[str], BoolArray]:
    """Texts of common words; with a shift, members say "lately" where others say "formerly"."""
    rng = np.random.default_rng(seed)
    member = rng.permutation(n) % 2 == 0
    texts = []
    for is_member in member:
        text = rng.choice(COMMON, size=20).tolist()
        if rng.random() < shift:
            text.append("lately" if is_member else "formerly")
        texts.append(" ".join(text))
    return texts, member


def measured(texts: list[str], ids: list[str] | None = None) -> Observations:
    ids = tuple(ids or (f"r{i:03d}" for i in range(len(texts))))
    records = [Record(id_, (Turn("text", text),)) for id_, text in zip(ids, texts, strict=True)]
    values = WordCounts().measure(records, None)
    return Observations(ids, {WordCounts(): dict(zip(ids, values, strict=True))})


def split(texts: list[str], member: BoolArray, n_audited: int) -> tuple[Observations, Known]:
    seen = measured(texts)
    known = Known(seen.select(seen.ids[n_audited:]), member[n_audited:])
    return seen.select(seen.ids[:n_audited]), known


def auc(values: FloatArray, member: BoolArray) -> float:
    wins = np.sign(values[member][:, None] - values[~member][None, :])
    return float((wins.mean() + 1) / 2)


def slow_forest(texts: list[str], member: BoolArray, n_audited: int) -> FloatArray:
    reader = CountVectorizer(tokenizer=words, token_pattern=None, lowercase=False, min_df=0.05)
    known = reader.fit_transform(texts[n_audited:])
    forest = RandomForestClassifier(
        n_estimators=100,
        max_depth=2,
        min_samples_leaf=5,
        class_weight="balanced",
        random_state=0,
    )
    forest.fit(known.toarray(), member[n_audited:])
    return forest.predict_proba(reader.transform(texts[:n_audited]).toarray())[:, 1]


def slow_logistic(texts: list[str], member: BoolArray, n_audited: int) -> FloatArray:
    reader = CountVectorizer(tokenizer=words, token_pattern=None, lowercase=False, min_df=0.05)
    weights = TfidfTransformer()
    known = weights.fit_transform(reader.fit_transform(texts[n_audited:]))
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit(known, member[n_audited:])
    p = model.predict_proba(weights.transform(reader.transform(texts[:n_audited])))[:, 1]
    return np.log(p) - np.log1p(-p)


@pytest.mark.parametrize(("model", "slow"), [("forest", slow_forest), ("logistic", slow_logistic)])
def test_equals_the_published_pipeline(model: str, slow: Callable[..., FloatArray]) -> None:
    texts, member = drawn(90, 0, shift=0.4)
    scores = BagOfWords(model).score(*split(texts, member, 30))
    assert scores.ids == tuple(f"r{i:03d}" for i in range(30))
    assert scores.values == pytest.approx(slow(texts, member, 30), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("model", ["forest", "logistic"])
def test_sees_a_shift_and_nothing_where_there_is_none(model: str) -> None:
    texts, member = drawn(300, 1, shift=0.5)
    scores = BagOfWords(model).score(*split(texts, member, 100))
    assert auc(scores.values, member[:100]) > 0.65
    texts, member = drawn(300, 2)
    scores = BagOfWords(model).score(*split(texts, member, 100))
    assert abs(auc(scores.values, member[:100]) - 0.5) < 3 * np.sqrt(101 / (12 * 50 * 50))


@pytest.mark.parametrize("model", ["forest", "logistic"])
def test_order_and_company_do_not_matter(model: str) -> None:
    texts, member = drawn(90, 3, shift=0.5)
    audited, known = split(texts, member, 30)
    scores = BagOfWords(model).score(audited, known)
    turned = np.arange(60)[::-1]
    reversed_known = Known(
        known.observations.select([known.observations.ids[i] for i in turned]), known.member[turned]
    )
    other = BagOfWords(model).score(audited.select(audited.ids[::-1]), reversed_known)
    assert other.ids == scores.ids[::-1]
    assert other.values.tolist() == scores.values[::-1].tolist()
    alone = BagOfWords(model).score(audited.select(["r007"]), known)
    assert alone.values.tolist() == [scores.values[7]]


@pytest.mark.parametrize("model", ["forest", "logistic"])
def test_learns_from_the_known_alone(model: str) -> None:
    """Other audited records bring other words, and change no score."""
    texts, member = drawn(60, 4, shift=0.5)
    strange = [f"aardvark zebra{i}" for i in range(30)]
    few = measured(texts)
    many = measured(texts + strange)
    scores = []
    for seen in (few, many):
        known = Known(seen.select(few.ids[10:]), member[10:])
        audited = seen.select(few.ids[:10] + seen.ids[60:])
        scores.append(BagOfWords(model).score(audited, known).values[:10].tolist())
    assert scores[0] == scores[1]


def test_a_text_without_known_words_has_a_score() -> None:
    texts, member = drawn(60, 5)
    scores = BagOfWords().score(*split(["!!!", "unheard", *texts], np.r_[True, False, member], 2))
    assert len(scores.values) == 2
    assert scores.values[0] == scores.values[1]


def test_without_two_known_classes_nothing_is_scored() -> None:
    seen = measured(["a b", "b c", "c d"])
    audited, rest = seen.select(["r000"]), seen.select(["r001", "r002"])
    for known, reason in (
        (None, "no records of known membership to learn from"),
        (Known(rest, np.array([True, True])), "the known records are all members or all non-members"),
        (Known(rest, np.array([False, False])), "the known records are all members or all non-members"),
        (Known(rest.select([]), np.array([], bool)), "there is no known record to learn from: none of them was measured"),
    ):  # fmt: skip
        scores = BagOfWords().score(audited, known)
        assert (scores.ids, scores.unscored) == ((), {"r000": reason})


def test_without_a_frequent_word_nothing_is_scored() -> None:
    seen = measured(["a", "b", "c", "d", "!"])
    known = Known(seen.select(seen.ids[1:]), np.array([True, False, True, False]))
    scores = BagOfWords(min_df=0.5).score(seen.select(["r000"]), known)
    assert scores.unscored == {"r000": "no word occurs in a share of 0.5 of the known records"}
    seen = measured(["a", "a", "b", "a", "c"])
    known = Known(seen.select(seen.ids[1:]), np.array([True, False, True, False]))
    assert BagOfWords(min_df=0.5).score(seen.select(["r000"]), known).ids == ("r000",)


def test_what_was_not_measured_is_left_out() -> None:
    texts, member = drawn(60, 6, shift=0.5)
    audited, known = split(texts, member, 10)
    with_gaps = Observations(
        (*audited.ids, "gone"), audited.values, {WordCounts(): {"gone": "empty"}}
    )
    known_gap = Known(
        Observations((*known.observations.ids, "gone"), known.observations.values),
        np.append(known.member, True),
    )
    scores = BagOfWords().score(with_gaps, known_gap)
    assert scores.unscored == {"gone": "empty"}
    assert scores.values.tolist() == BagOfWords().score(audited, known).values.tolist()
    nothing = BagOfWords().score(Observations(("a",), {}), known)
    assert nothing.unscored == {"a": "this signal was not measured"}


def test_says_what_it_is() -> None:
    assert is_fitted(BagOfWords())
    assert is_blind(BagOfWords())
    assert WordCounts.private
    with pytest.raises(ValueError, match="got model='svm', expected 'forest' or 'logistic'"):
        BagOfWords("svm")  # type: ignore[arg-type]
    for min_df in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"got min_df=.*, expected a share of at least 0"):
            BagOfWords(min_df=min_df)
