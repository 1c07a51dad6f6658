import pytest
from scripted import TREC, Scripted, played

from unseen.prompts.templates import as_chat
from unseen.prompts.trials import Game
from unseen.signals.inquired import Inquired, Reply


def reply_to(reply: str, signal: Inquired = Inquired()) -> Reply:  # noqa: B008 (frozen)
    def rule(_: str) -> str:
        return reply

    seen = played([signal], Scripted(rule), game=Game(trials=1)).observations
    (value, other) = seen.values[signal].values()
    assert value == other
    return value


@pytest.mark.parametrize(
    ("reply", "agreed", "parsed"),
    [
        ("Yes", 1, 1),
        (" yes, I have", 1, 1),
        ("\n\nYES.", 1, 1),
        ('"Yes"', 1, 1),
        ("**Yes**", 1, 1),
        ("_Yes_, I have", 1, 1),
        ("No, but yes", 0, 1),
        ("\nNo", 0, 1),
        ("I have, yes", 0, 0),
        ("Yesterday", 0, 0),
        ("Notable", 0, 0),
        ("", 0, 0),
        ("\n\n", 0, 0),
    ],
)
def test_the_first_word_decides(reply: str, agreed: int, parsed: int) -> None:
    assert reply_to(reply) == Reply(agreed, parsed)


def test_it_asks_the_paper_s_question_or_another() -> None:
    def rule(_: str) -> str:
        return "yes"

    target, game = Scripted(rule), Game(trials=1)
    (case, _) = played([Inquired()], target, game=game).cases
    hidden = f"<|begin|>{TREC.hidden(case.demos)}"
    question = f"Have you seen this sentence before: {case.example.text}?"
    assert f"{hidden}{question}" in target.prompts
    target.prompts.clear()
    played([Inquired(cue=True)], target, game=game)
    assert f"{hidden}{question}\nAnswer:" in target.prompts
    target.prompts.clear()
    other = Inquired(wording="Is “{input}” above? Answer in one word, yes or no.")
    played([other], target, game=game, template=as_chat(TREC))
    asked = f"Is “{case.example.text}” above? Answer in one word, yes or no."
    assert any(prompt.endswith(f"<|user|>{asked}<|end|><|assistant|>") for prompt in target.prompts)


def test_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match=r"expected \{input\} where the sentence goes"):
        Inquired(wording="Have you seen it?")
    with pytest.raises(ValueError, match="got longest=0"):
        Inquired(longest=0)
