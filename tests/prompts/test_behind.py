import dataclasses

import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import PAPERS, Example, PromptTemplate, as_chat
from unseen.prompts.trials import Game
from unseen.targets.fake import FakeTokenizer

TREC = PAPERS["trec"]
POOL = [Example(f"r{i}", f"What is thing {i}?", ("Entity", "Number")[i % 2]) for i in range(8)]
(CASE, _) = Game(trials=1).cases(POOL)
ENCODER = RecordEncoder(FakeTokenizer(), Layout(), limit=1000)
BEGIN = 256


def behind(template: PromptTemplate = TREC, **choices: bool) -> HiddenPrompts:
    return HiddenPrompts.of(template, ENCODER, [CASE], **choices)


def text(prompts: HiddenPrompts, said: str) -> str:
    return ENCODER.tokenizer.decode(prompts.prompt(CASE.id, said))


def test_what_is_sent_comes_after_the_hidden_prompt() -> None:
    asked = TREC.asked("Who?")
    assert text(behind(), asked) == TREC.hidden(CASE.demos) + asked
    assert behind().prompt(CASE.id, asked)[0] == BEGIN
    assert text(behind(empty=True), asked) == TREC.hidden(()) + asked
    assert text(behind(observed=True), asked) == asked


def test_in_a_chat_it_is_a_message() -> None:
    chat = as_chat(TREC)
    shown = TREC.hidden(CASE.demos).rstrip()
    assert behind(chat).prompt(CASE.id, "Hello")[0] == 258, "the system's message comes first"
    assert text(behind(chat), "Hello") == f"{shown}Hello"
    assert text(behind(chat, empty=True), "Hello") == f"{TREC.hidden(()).rstrip()}Hello"
    assert text(behind(chat, observed=True), "Hello") == "Hello"
    assert behind(chat).is_chat
    turns = as_chat(dataclasses.replace(TREC, after="Say less.\n\n"), as_turns=True)
    assert text(behind(turns, observed=True), "Hello") == "Hello"
    assert text(behind(turns), "Hello").endswith("Say less.\n\nHello")


def test_it_writes_as_the_template_does() -> None:
    prompts = behind()
    assert prompts.shown("Who?", "Number") == "Question: Who?\nAnswer Type: Number\n\n"
    assert prompts.begun("Who") == "Question: Who"
    assert prompts.answered("Number") == " Number"
    assert prompts.until(" Number\n\nQuestion") == " Number"
    assert prompts.parse("It is a Number.") == "Number"
    assert prompts.wrong(CASE.id) == CASE.wrong
    assert len(prompts.labels) == 6
    free = PromptTemplate("free", "", "{input}", "{input} {output}\n")
    assert (behind(free).labels, behind(free).parse("Number")) == ((), None)


def test_what_does_not_fit_has_a_reason() -> None:
    with pytest.raises(UnscorableError, match="no room in the context"):
        behind().prompt(CASE.id, "x" * 1000)
