from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripted import TREC, Scripted, copying, played, pool, said_in, shown_in

from unseen.data.templates import Layout, RecordEncoder
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import PAPERS, Example, PromptTemplate, as_chat
from unseen.prompts.trials import Game
from unseen.runs.collect import (
    Model,
    later_prompts_of,
    later_questions,
    prompts_of,
    questions,
)
from unseen.runs.prompt.asked import total
from unseen.scoring.store import Store
from unseen.signals.answered import Answered
from unseen.signals.base import AdaptiveSignal, ForeseeingSignal, Shown, Signal
from unseen.signals.flipped import FlippedChoice, FlippedText, Flips
from unseen.targets.defended import DefendedTarget
from unseen.targets.ending import first_line
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget

GAME = Game(trials=6, shots=2)
Given = Callable[[str, str, int], bool]
"""A question, a label and how often it was shown with it: whether the label is the answer."""


def giving(given: Given) -> Scripted:
    """A model that gives a label that it was shown with the question as it is told."""

    def rule(text: str) -> str:
        question = said_in(text).removeprefix("Question: ").removesuffix("\nAnswer Type:")
        shown = [label for one, label in shown_in(text) if one == question]
        for label in shown[-1:] or TREC.labels.words:
            if given(question, label, shown.count(label)):
                return f" {label}\n\nQuestion"
        return " I do not know"

    return Scripted(rule)


def times(question: str, label: str) -> int:
    """Some number from 0 to 12."""
    return sum(map(ord, question + label)) % 13


def values(signal: FlippedText | FlippedChoice, target: FakeTarget, **choices) -> dict[str, Flips]:
    found = played([signal], target, game=GAME, **choices)
    assert not found.observations.missing.get(signal)
    return {case.id: found.observations.get(signal, case.id) for case in found.cases}


@pytest.mark.parametrize("cap", [1, 3, 10])
def test_counts_are_exactly_those_of_the_model_from_0_to_the_cap(cap: int) -> None:
    # Each question has a label of its own that is given without any demonstration.
    def given(question: str, label: str, n: int) -> bool:
        if n == 0:
            return label == TREC.labels.words[times(question, "") % 6]
        return n >= times(question, label)

    found = played([FlippedText(cap=cap)], giving(given), game=GAME, empty=True)
    seen = set()
    for case in found.cases:
        value = found.observations.get(FlippedText(cap=cap), case.id)
        at_once = TREC.labels.words[times(case.example.text, "") % 6]
        for label, count, never, cut in zip(
            case.wrong, value.counts, value.censored, value.cut, strict=True
        ):
            expected = 0 if label == at_once else max(1, times(case.example.text, label))
            assert count == min(cap, expected)
            assert (never, cut) == (expected >= cap, False)
            seen.add(int(count))
    assert {0, cap} <= seen


def slow(target: Scripted, case, hidden: str, label: str, cap: int) -> int:
    """One question after the other, until the answer is the label."""
    for n in range(cap):
        block = f"Question: {case.example.text}\nAnswer Type: {label}\n\n"
        sent = f"{n * block}Question: {case.example.text}\nAnswer Type:"
        if TREC.labels.parse(target.rule(f"<|begin|>{hidden}{sent}")) == label:
            return n
    return cap


@pytest.mark.parametrize("empty", [False, True])
def test_it_equals_one_question_after_the_other(*, empty: bool) -> None:
    target = Scripted(copying)
    signal = FlippedText()
    found = played([signal], target, game=GAME, empty=empty)
    for case in found.cases:
        hidden = TREC.hidden(() if empty else case.demos)
        counts = [slow(target, case, hidden, label, 10) for label in case.wrong]
        assert found.observations.get(signal, case.id).counts.tolist() == counts


def test_a_model_that_changes_its_mind_is_asked_in_order() -> None:
    found = values(FlippedText(), giving(lambda _, __, n: n in (2, 5, 9)))
    assert {tuple(value.counts) for value in found.values()} == {(2, 2, 2, 2, 2)}


def test_only_the_label_that_is_insisted_on_is_a_flip() -> None:
    def rule(_: str) -> str:
        return " Number"

    found = played([FlippedText(cap=4)], Scripted(rule), game=GAME)
    for case in found.cases:
        counts = found.observations.get(FlippedText(cap=4), case.id).counts
        assert counts.tolist() == [0 if label == "Number" else 4 for label in case.wrong]


class Rambling(Scripted):
    """Writes all that it has room for, whatever may end it."""

    def generate(self, prompts, **how):
        return super().generate(prompts, **(how | {"one_line": False}))


BEGINNINGS = ("", " ", "\n", "\n\n ", '"\n', " *\n(", "It is a ", "-\n", "I do not know.\n")
ENDS = ("", ".", "\n", "\n\nQuestion: Who?\nAnswer Type: Person\n", "\r\nEntity\n", " or Person\n")


@pytest.mark.parametrize("signal", [Answered(longest=40), FlippedText(cap=5, longest=40)])
def test_what_follows_the_line_of_an_answer_is_not_waited_for(signal: Signal) -> None:
    def rule(text: str) -> str:
        number = sum(i * ord(letter) for i, letter in enumerate(text))
        begin, label = BEGINNINGS[number % 9], TREC.labels.words[number // 9 % 6]
        return begin + label + ENDS[number // 54 % 6]

    game = Game(trials=20, shots=2)
    stopped, whole = (played([signal], of(rule), game=game) for of in (Scripted, Rambling))
    assert stopped.target.prompts == whole.target.prompts
    one, other = (
        [repr(of.observations.get(signal, case.id)) for case in of.cases] for of in (stopped, whole)
    )
    assert one == other
    assert len(set(one)) > 1


class Heard(DefendedTarget):
    """Keeps what a model writes; where it rambles, nothing but its own end ends an answer."""

    whole_answers = False

    def __init__(self, inner: HFTarget, *, rambles: bool) -> None:
        super().__init__(inner, [rambles])
        self.rambles = rambles
        self.answers: dict[tuple[int, ...], str] = {}

    def generate(self, prompts, **how):
        made = super().generate(prompts, **(how | {"one_line": how["one_line"] > self.rambles}))
        self.answers |= zip(map(tuple, prompts), map(self.tokenizer.decode, made), strict=True)
        return made


@pytest.mark.slow
@pytest.mark.parametrize("template", [TREC, as_chat(TREC)])
def test_of_a_real_model_the_line_says_what_the_whole_answer_does(
    smollm2: Path, template: PromptTemplate
) -> None:
    inner, game = HFTarget(smollm2, dtype="float32"), Game(trials=2, shots=3)
    signals = [Answered(), FlippedText(cap=3)]
    one, other = (
        played(signals, Heard(inner, rambles=rambles), game=game, template=template)
        for rambles in (False, True)
    )
    assert one.target.answers.keys() == other.target.answers.keys()
    for ids, text in other.target.answers.items():
        assert one.target.answers[ids] == first_line(text)
        assert TREC.labels.parse(one.target.answers[ids]) == TREC.labels.parse(text)
    values = [
        [repr(of.observations.get(signal, case.id)) for signal in signals for case in of.cases]
        for of in (one, other)
    ]
    assert values[0] == values[1]


def test_nothing_is_asked_that_need_not_be() -> None:
    target = giving(lambda _, __, n: n >= 2)
    values(FlippedText(), target)
    # The question alone, and each wrong label once and twice.
    assert len(target.prompts) == 12 * (1 + 5 * 2)
    assert len(set(target.prompts)) == len(target.prompts)


def test_of_many_labels_three_are_tried_the_same_for_both_of_a_trial() -> None:
    words = PAPERS["dbpedia"].labels.words
    examples = [Example(one.id, one.text, words[i % 14]) for i, one in enumerate(pool(28))]

    def rule(text: str) -> str:
        return f" {text.rpartition('Answer: ')[2].split()[0]}"

    signal = FlippedText(cap=3)
    found = played(
        [signal], Scripted(rule), game=GAME, examples=examples, template=PAPERS["dbpedia"]
    )
    for case in found.cases:
        assert found.observations.get(signal, case.id).counts.shape == (3,)
    for one, other in zip(found.cases[::2], found.cases[1::2], strict=True):
        assert len(set(one.wrong[:3]) & set(other.wrong[:3])) >= 2


def test_labels_of_records_have_numbers() -> None:
    found = played([FlippedText(cap=1)], Scripted(copying), game=GAME)
    by_label = {}
    for case in found.cases:
        value = found.observations.get(FlippedText(cap=1), case.id)
        assert by_label.setdefault(case.example.label, value.label) == value.label
    assert len(set(by_label.values())) == len(by_label) > 2


def test_what_does_not_fit_any_more_counts_as_never_and_is_told() -> None:
    def rule(_: str) -> str:
        return " I do not know"

    game = Game(trials=2)
    (case, _) = played([FlippedText(cap=1)], Scripted(rule), game=game).cases[:2]
    behind = TREC.hidden(case.demos) + TREC.asked(case.example.text)
    block = len(TREC.shown(case.example)) - len(case.example.label)
    longest = max(map(len, case.wrong))
    answer = len(" Abbreviation") + 4
    # One byte too few for a third demonstration with the longest label.
    limit = 1 + len(behind) + 3 * (block + longest) + answer - 1
    found = played([FlippedText()], Scripted(rule, max_length=limit), cases=[case])
    value = found.observations.get(FlippedText(), case.id)
    assert value.counts.tolist() == [10] * 5
    assert value.censored.all()
    assert value.cut.all()
    n_asked = [prompt.count(f"Answer Type: {case.wrong[0]}\n") for prompt in found.target.prompts]
    assert max(n_asked) == (2 if len(case.wrong[0]) == longest else 3)
    tight = played(
        [FlippedText(), FlippedChoice()],
        Scripted(rule, max_length=1 + len(behind) + answer),
        cases=[case],
    )
    assert tight.observations.get(FlippedText(), case.id).cut.all()
    assert tight.observations.get(FlippedChoice(), case.id).cut.all()
    too_tight = played(
        [FlippedText()], Scripted(rule, max_length=len(behind) + answer), cases=[case]
    )
    assert set(too_tight.observations.missing[FlippedText()].values()) == {
        "there is no room in the context for an answer"
    }


def test_in_a_chat_it_is_all_one_message() -> None:
    def rule(_: str) -> str:
        return "It is a Number."

    target = Scripted(rule)
    found = played([FlippedText(cap=2)], target, game=Game(trials=1), template=as_chat(TREC))
    case = found.cases[0]
    block = f"Question: {case.example.text}\nAnswer Type: {case.wrong[0]}\n\n"
    said = f"<|user|>{block}Question: {case.example.text}\nAnswer Type:<|end|><|assistant|>"
    flipped_at_once = case.wrong[0] == "Number"
    assert any(prompt.endswith(said) for prompt in target.prompts) != flipped_at_once


# --- by choice ----------------------------------------------------------------------------------


def slow_choice(target: FakeTarget, case, label: str, cap: int) -> int:
    """Every label scored byte by byte, one question after the other."""
    for n in range(cap):
        block = f"Question: {case.example.text}\nAnswer Type: {label}\n\n"
        sent = f"{n * block}Question: {case.example.text}\nAnswer Type:"
        context = target.tokenizer.encode(f"<|begin|>{TREC.hidden(case.demos)}{sent}")
        totals = []
        for one in TREC.labels.words:
            answer = list(f" {one}".encode())
            logits = target.logits(context + answer, len(context) - 1)[:-1]
            own = logits[np.arange(len(answer)), answer] - np.logaddexp.reduce(logits, axis=1)
            totals.append(own.sum())
        if TREC.labels.words[int(np.argmax(totals))] == label:
            return n
    return cap


def test_by_choice_it_equals_one_question_after_the_other() -> None:
    target = FakeTarget(strength=3.0)
    signal = FlippedChoice(cap=3)
    found = played([signal], target, game=Game(trials=2))
    all_counts = set()
    for case in found.cases:
        value = found.observations.get(signal, case.id)
        counts = [slow_choice(target, case, label, 3) for label in case.wrong]
        assert value.counts.tolist() == counts
        assert value.censored.tolist() == [count == 3 for count in counts]
        all_counts |= set(counts)
    assert len(all_counts) > 1


def test_by_choice_nothing_is_asked_that_need_not_be() -> None:
    target = FakeTarget(strength=16.0)
    signal = FlippedChoice(cap=4)
    found = played([signal], target, game=Game(trials=2))
    n_asked = 0
    for case in found.cases:
        value = found.observations.get(signal, case.id)
        asked = np.where(value.censored, value.counts - 1, value.counts)
        n_asked += 6 * (1 + int(asked.sum()))
    assert target.n_executed == n_asked


def test_what_cannot_be_compared_has_its_reason() -> None:
    class Silent(FakeTarget):
        def execute(self, batch):
            answers = super().execute(batch)
            return [type(a)(np.full_like(a.logprob, -np.inf)) for a in answers]

    found = played([FlippedChoice()], Silent(), game=Game(trials=1))
    reasons = found.observations.missing[FlippedChoice()]
    assert set(reasons.values()) == {"a label has no finite likelihood"}
    assert len(reasons) == 2


def test_a_plan_foresees_the_most_that_is_asked() -> None:
    def rule(_: str) -> str:
        return " I do not know"

    text, choice = FlippedText(cap=4), FlippedChoice(cap=4)
    assert isinstance(text, ForeseeingSignal)
    assert isinstance(choice, AdaptiveSignal)
    found = played([text], Scripted(rule), game=GAME)
    target = found.target
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    shown = Shown(behind={"target": HiddenPrompts.of(TREC, encoder, found.cases)})
    records = [case.record for case in found.cases]
    models = {"target": Model(target, encoder)}
    first, later = (
        of([text], records, models, shown=shown)["target"] for of in (prompts_of, later_prompts_of)
    )
    assert (len(first), len(later)) == (12, 12 * 5 * 3)
    assert sorted(target.prompts) == sorted(target.text(one.ids) for one in first + later)
    first, later = (
        of([choice], records, models, shown=shown)["target"] for of in (questions, later_questions)
    )
    assert (len(first), len(later)) == (6 * 12, 6 * 12 * 5 * 3)
    with Store() as store:
        asked = total([text, choice], [(records, models, shown)], store)
    assert (asked.left, asked.at_most) == (12 * 7, 12 * 7 * 16)


@pytest.mark.parametrize("signal", [FlippedText, FlippedChoice])
def test_refuses_what_makes_no_sense(signal: type) -> None:
    with pytest.raises(ValueError, match="got cap=0, expected at least 1"):
        signal(cap=0)
