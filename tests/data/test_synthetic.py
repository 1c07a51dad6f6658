"""Records of invented people: the same everywhere, all different, and no hint of who is a member."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from unseen.data.synthetic import people
from unseen.errors import UsageError


def _name(question: str) -> str:
    """The person a question is about: the first two capitalised words that do not open a sentence."""
    found = re.search(r"\b([A-Z][a-z]+ (?!from|has)[A-Z][a-z]+)\b(?:'s)?", question)
    assert found is not None, question
    return found[1]


def test_the_same_records_with_every_version() -> None:
    text = "\n".join(f"{r.id}\n{r.text}" for r in people(20, 3))
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "3e34bbfca241923745cf5f569a5db46bf21a250cbd3b98c8c9815d3590e93a25"
    )


def test_a_shorter_list_begins_a_longer_one() -> None:
    assert people(7, 11) == people(40, 11)[:7]
    assert people(5, 1) != people(5, 2)


def test_no_person_and_no_id_twice() -> None:
    records = people(3000, 5)
    assert len({_name(r.turns[0].content) for r in records}) == 3000
    assert len({r.id for r in records}) == 3000
    assert len({r.turns[1].content for r in records}) == 3000


def test_a_record_is_a_question_and_an_answer_about_one_person() -> None:
    for record in people(400, 2):
        question, answer = record.turns
        assert (question.role, answer.role) == ("user", "assistant")
        assert record.slices["file"] in ("health", "work")
        assert not re.search(r"[{}]|\b(a|an) (a|an)\b|  ", record.text)
        assert 12 <= len(answer.content.split()) <= 70
        # Details that nobody can guess: numbers, or names of people and places.
        assert len(re.findall(r"\d+|(?<=[a-z,] )[A-Z][a-z]+", answer.content)) >= 3


def test_both_files_are_as_frequent() -> None:
    share = np.mean([r.slices["file"] == "health" for r in people(1000, 9)])
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / 1000)


def test_wording_varies() -> None:
    """Of all runs of four words in 300 answers, four in five are different ones."""
    words = [r.turns[1].content.split() for r in people(300, 4)]
    runs = [tuple(w[i : i + 4]) for w in words for i in range(len(w) - 3)]
    assert len(set(runs)) / len(runs) > 0.8
    begins = [tuple(w[:2]) for w in words]
    assert max(begins.count(b) for b in set(begins)) < 0.1 * len(begins)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_text_does_not_tell_members_apart(seed: int) -> None:
    """Bag of words, 300 members and 300 non-members, 5 folds: AUC within 3.5 standard errors of 1/2."""
    records = people(600, seed)
    member = np.random.default_rng(seed).permutation(np.repeat([True, False], 300))
    counts = CountVectorizer(ngram_range=(1, 2), min_df=2).fit_transform(r.text for r in records)
    guess = cross_val_predict(
        LogisticRegression(C=0.1, max_iter=500), counts, member, cv=5, method="decision_function"
    )
    error = np.sqrt((300 + 300 + 1) / (12 * 300 * 300))
    assert abs(roc_auc_score(member, guess) - 0.5) < 3.5 * error


def test_the_first_half_is_as_good_as_any() -> None:
    """The same with the first half as members: nothing in the generator drifts."""
    records = people(600, 8)
    member = np.arange(600) < 300
    counts = CountVectorizer(min_df=2).fit_transform(r.text for r in records)
    order = np.random.default_rng(0).permutation(600)
    guess = cross_val_predict(
        LogisticRegression(C=0.1, max_iter=500),
        counts[order],
        member[order],
        cv=5,
        method="decision_function",
    )
    error = np.sqrt((300 + 300 + 1) / (12 * 300 * 300))
    assert abs(roc_auc_score(member[order], guess) - 0.5) < 3.5 * error


def test_none_at_all() -> None:
    assert people(0, 0) == ()


@pytest.mark.parametrize(("n", "seed"), [(-1, 0), (36_001, 0), (1, -1)])
def test_numbers_out_of_range(n: int, seed: int) -> None:
    with pytest.raises(UsageError, match="expected 0"):
        people(n, seed)
