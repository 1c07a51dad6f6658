import numpy as np
import pytest
from scripted import TREC, Scripted, copying, ignoring, played, pool

from unseen import attacks
from unseen.attacks.gap import RightAnswer
from unseen.errors import ConfigError
from unseen.prompts.templates import PromptTemplate, as_chat
from unseen.prompts.trials import Game
from unseen.signals.answered import Answer, Answered
from unseen.signals.labelled import Labelled, LabelLikelihoods
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget

TEXT, CHOICE = RightAnswer(), RightAnswer(mode="choice")


def test_a_right_answer_is_one(observed) -> None:
    values = {"a": Answer(1, 1), "b": Answer(0, 1), "c": Answer(0, 0), "d": "because"}
    scores = TEXT.score(observed({Answered(): values}))
    assert dict(zip(scores.ids, scores.values.tolist(), strict=True)) == {"a": 1, "b": 0, "c": 0}
    assert scores.unscored == {"d": "because"}


def test_the_likeliest_label_is_the_answer(observed) -> None:
    def likely(*logprob: float, own: int) -> LabelLikelihoods:
        return LabelLikelihoods(np.array(logprob), own)

    values = {
        "a": likely(-3.0, -1.0, -2.0, own=1),
        "b": likely(-3.0, -1.0, -2.0, own=2),
        "c": likely(-1.0, -1.0, -2.0, own=0),
        "d": likely(-1.0, -1.0, -2.0, own=1),
        "e": likely(-1.0, -np.inf, -2.0, own=0),
        "f": likely(np.nan, -1.0, -2.0, own=1),
    }
    scores = CHOICE.score(observed({Labelled(): values}))
    right = {"a": 1, "b": 0, "c": 1, "d": 0}
    assert dict(zip(scores.ids, scores.values.tolist(), strict=True)) == right
    assert scores.unscored == dict.fromkeys("ef", "a label has no finite likelihood")


def test_labels_are_scored_as_a_whole_after_the_question() -> None:
    target = FakeTarget(strength=4.0)
    found = played(CHOICE.signals(), target, game=Game(trials=3))
    for case in found.cases:
        value = found.observations.get(Labelled(), case.id)
        asked = TREC.hidden(case.demos) + TREC.asked(case.example.text)
        for label, logprob in zip(TREC.labels.words, value.logprob, strict=True):
            ids = target.tokenizer.encode(f"<|begin|>{asked}")
            total = 0.0
            for token in target.tokenizer.encode(f" {label}"):
                logits = target.logits(ids, len(ids) - 1)[0]
                total += logits[token] - np.logaddexp.reduce(logits)
                ids.append(token)
            assert logprob == pytest.approx(total)
        assert TREC.labels.words[value.own] == case.example.label


def test_it_tells_who_is_in_the_prompt_of_a_model_that_answers_from_it() -> None:
    found = played([*TEXT.signals(), *CHOICE.signals()], Scripted(copying))
    assert found.auc(TEXT) == 1
    assert found.auc(CHOICE) > 0.8
    nonmembers = [case.id for case in found.cases if not case.member]
    assert not any(found.observations.get(Answered(), id_).parsed for id_ in nonmembers)
    same = played(TEXT.signals(), Scripted(ignoring), game=Game(trials=20, paired=True))
    assert same.auc(TEXT) == 0.5
    assert all(value.parsed for value in same.observations.values[Answered()].values())


def test_in_a_chat_a_label_has_no_space_before_it() -> None:
    target = FakeTarget()
    found = played(CHOICE.signals(), target, game=Game(trials=1), template=as_chat(TREC))
    (case, _) = found.cases
    value = found.observations.get(Labelled(), case.id)
    shown = TREC.hidden(case.demos).rstrip()
    ids = target.tokenizer.encode(
        f"<|system|>{shown}<|end|><|user|>{TREC.asked(case.example.text)}<|end|><|assistant|>"
    )
    logits = target.logits([*ids, *b"Number"], len(ids) - 1)[:-1]
    own = logits[np.arange(6), list(b"Number")] - np.logaddexp.reduce(logits, axis=1)
    assert value.logprob[0] == pytest.approx(own.sum())


def test_without_labels_or_room_there_is_a_reason() -> None:
    free = PromptTemplate("free", "", "{input}:", "{input}: {output}\n")
    for template, examples, limit, why in (
        (free, pool(8), 9999, "answers are free text: there are no labels to tell right"),
        (TREC, [*pool(8)[:6], *(_labelled(one) for one in pool(8)[6:])], 9999, "its label is none"),
        (TREC, pool(8), 260, "no room"),
    ):
        for attack in (TEXT, CHOICE):
            found = played(
                attack.signals(),
                Scripted(ignoring, max_length=limit),
                game=Game(trials=4),
                examples=examples,
                template=template,
            )
            reasons = found.scores(attack).unscored
            assert reasons
            assert all(why in reason or "does not fit" in reason for reason in reasons.values())


def _labelled(example):
    import dataclasses

    return dataclasses.replace(example, label="Colour")


def test_fields_say_what_is_measured() -> None:
    assert attacks.create("gap[longest=3]").signals() == (Answered(longest=3),)
    assert (TEXT.access, CHOICE.access) == (Access.TEXT, Access.LOGPROB)
    assert RightAnswer.access == Access.TEXT
    found = played(TEXT.signals(), Scripted(ignoring), game=Game(trials=1))
    assert found.target.longest == len(" Abbreviation") + 4
    with pytest.raises(ConfigError, match="got mode='label', expected one of text, choice"):
        attacks.create("gap[mode=label]")
    with pytest.raises(ConfigError, match="got longest=-1, expected 0 "):
        attacks.create("gap[longest=-1]")
