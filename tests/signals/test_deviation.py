from collections import Counter
from collections.abc import Sequence
from math import exp, log

import numpy as np
import pytest
from fillers import ListFiller

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import PAPERS, Example, PromptTemplate, as_chat
from unseen.prompts.trials import Case
from unseen.scoring.engine import Engine
from unseen.scoring.store import Store
from unseen.signals.base import REFERENCE, SURROGATE, Materials, Observations, as_control
from unseen.signals.deviation import (
    SILENT,
    Deviating,
    DeviatingPerplexity,
    DeviatingTexts,
    Deviations,
    Perplexities,
    bleu,
    rouge_l,
)
from unseen.signals.embedding import text_encoder
from unseen.signals.masks import generator
from unseen.signals.neighbourhood import EarlySwapping, Neighbourhood, beginning
from unseen.targets.edits import edited
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.types import Record

TREC = PAPERS["trec"]
TEXT = "What films featured the character Popeye Doyle in Marseille during winter?"
LETTERS = Deviating(encoder="letters", neighbours=2)
REST = "featured the character Popeye Doyle in Marseille during winter?\nAnswer Type: Entity"


def record(text: str = TEXT) -> Record:
    return case(text).record


def case(text: str = TEXT) -> Case:
    example = Example("e", text, "Entity")
    return Case("c", 0, example, (Example("d", "Who?", "Person"),), member=False, position=0)


def materials(
    text: str = TEXT, template: PromptTemplate = TREC, filler: ListFiller | None = None
) -> Materials:
    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=4000)
    behind = HiddenPrompts.of(template, encoder, [case(text)])
    fillers = {"embeddings": filler or ListFiller()}
    return Materials(encoder, behind=behind, neighbourhood=Neighbourhood(fillers))


def seen(texts: Sequence[str], signal: Deviating = LETTERS, **about) -> Deviations:
    return signal.observe(record(), materials(**about), texts)


# --- twins ----------------------------------------------------------------------------------------


def slow_bleu(text: str, expected: str) -> float:
    """Equations 10 and 11 by loops; words are what spaces set apart."""
    found, wanted = text.split(), expected.split()
    halves, logs = 1.0, []
    for n in range(1, min(4, len(found)) + 1):
        of = [
            Counter(tuple(side[i : i + n]) for i in range(len(side) - n + 1))
            for side in (found, wanted)
        ]
        common = sum(min(count, of[1][gram]) for gram, count in of[0].items())
        if n == 1 and not common:
            return 0.0
        if not common:
            halves /= 2
        logs.append(log((common or halves) / sum(of[0].values())))
    if not logs:
        return 0.0
    return exp(sum(logs) / len(logs)) * exp(min(0, 1 - len(wanted) / len(found)))


def slow_lcs(one: Sequence[str], other: Sequence[str]) -> int:
    """The longest common subsequence, by its definition."""
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + slow_lcs(one[1:], other[1:])
    return max(slow_lcs(one[1:], other), slow_lcs(one, other[1:]))


PAIRS = [
    ("the old house stands by the river", "the old house stands by the river"),
    ("the old house by the river", "the old house stands by the river"),
    ("house old the", "the old house stands by the river"),
    ("the the the the", "the old house"),
    ("river", "the old house stands by the river"),
    ("a tulip", "the old house"),
    ("", "the old house"),
    ("the old house stands by the river and the sea", "the old house"),
]


@pytest.mark.parametrize(("text", "expected"), PAIRS)
def test_bleu_is_that_of_slow_arithmetic(text: str, expected: str) -> None:
    assert bleu(text, expected) == pytest.approx(slow_bleu(text, expected), abs=1e-12)


@pytest.mark.parametrize(("text", "expected"), PAIRS)
def test_rouge_l_is_that_of_the_definition(text: str, expected: str) -> None:
    found, wanted = text.split(), expected.split()
    common = slow_lcs(found, wanted)
    assert rouge_l(text, expected) == pytest.approx(common / len(wanted))
    recall, precision = common / len(wanted), common / max(1, len(found))
    f1 = 2 * recall * precision / (recall + precision) if common else 0.0
    assert rouge_l(text, expected, recall=False) == pytest.approx(f1)


def test_overlap_is_of_words_without_case_and_marks() -> None:
    assert rouge_l("The HOUSE, old", "the house: old?") == 1
    assert rouge_l("東の家", "東京") == 0.5
    assert rouge_l("what", "?") == 0


# --- beginnings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "share", "begun"),
    [
        (TEXT, 0.2, "What films"),
        (TEXT, 0.3, "What films featured"),
        (" Who  was he?", 0.2, " Who  was"),
        ("東京の家", 0.2, "東京"),
        ("one two three", 0.99, "one two"),
    ],
)
def test_a_beginning_is_a_share_of_the_words(text: str, share: float, begun: str) -> None:
    assert text[: beginning(text, share)] == begun


@pytest.mark.parametrize("text", ["Who was?", "", "東京", "unbelievable"])
def test_what_has_no_rest_has_a_reason(text: str) -> None:
    with pytest.raises(UnscorableError, match="too short to be continued: it has 2 words or fewer"):
        Deviating().prompts(record(text), materials(text))


def test_neighbours_differ_in_one_word_of_the_beginning() -> None:
    text = "What Films featured the hero Doyle, and who wrote any of them?"
    making = EarlySwapping("embeddings", 5, 3, 0.3, 0.4, 0)
    made = [edited(text, edits) for _, edits in making.made(text, ListFiller())]
    assert len(set(made)) == 5
    end = beginning(text, 0.4)
    for one in made:
        pairs = [(a, b) for a, b in zip(text.split(), one.split(), strict=True) if a != b]
        ((old, new),) = pairs
        assert text.index(old) < end
        assert old in ("Films", "featured"), "no stop words, where there are others"
        assert new[0].isupper() == old[0].isupper()
        assert one.endswith(text[end:])
    assert made == [edited(text, edits) for _, edits in making.made(text, ListFiller())]
    other = EarlySwapping("embeddings", 5, 3, 0.3, 0.4, 1)
    assert made != [edited(text, edits) for _, edits in other.made(text, ListFiller())]


def one_by_one(text: str, filler: ListFiller, seed: int) -> list[str]:
    """Neighbours with a word replaced: a word drawn, its best other taken, and so on."""
    rng, end, made = generator(seed, 0, text), beginning(text, 0.4), []
    swaps = filler.swaps(text, top_k=3, dropout=0.3, rng=rng, until=end)
    while swaps and len(made) < 7:
        able = [s for s in swaps if text[s.edit.start : s.edit.stop] != "the"] or swaps
        places = sorted({s.edit.start for s in able})
        place = places[int(rng.integers(len(places)))]
        best = next(s for s in able if s.edit.start == place)
        swaps.remove(best)
        made.append(text[: best.edit.start] + best.edit.put + text[best.edit.stop :])
    return made


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_of_one_word_are_drawn_one_by_one(seed: int) -> None:
    text = "Films featured the hero Doyle, and nobody wrote any songs."
    making = EarlySwapping("embeddings", 7, 3, 0.3, 0.4, seed)
    made = [edited(text, edits) for _, edits in making.made(text, ListFiller())]
    assert made == one_by_one(text, ListFiller(), seed)


@pytest.mark.parametrize(("replacements", "n"), [(2, 2), (3, 3), (9, 5)])
def test_neighbours_may_differ_in_more_words(replacements: int, n: int) -> None:
    text = "What Films featured the hero Doyle, and who wrote any of them?"
    making = EarlySwapping("embeddings", 3, 3, 0.3, 0.42, 0, replacements)
    made = making.made(text, ListFiller())
    assert len({edits for _, edits in made}) == 3
    for score, edits in made:
        new = edited(text, edits)
        assert sum(a != b for a, b in zip(text.split(), new.split(), strict=True)) == n
        assert new.endswith(text[beginning(text, 0.42) :])
        own = {swap.edit: swap.score for swap in filler_swaps(text)}
        assert score == pytest.approx(np.mean([own[edit] for edit in edits]))
    signal = Deviating(prefix=0.42, neighbours=3, others=3, replacements=replacements)
    assert signal.beginnings(record(text), materials(text))[1:] == [
        edited(text, edits)[: -len(text[beginning(text, 0.42) :])] for _, edits in made
    ]


def filler_swaps(text: str):
    rng = np.random.default_rng(0)
    return ListFiller().swaps(text, top_k=3, dropout=0.3, rng=rng, until=beginning(text, 0.42))


def test_stop_words_are_swapped_where_there_is_nothing_else() -> None:
    making = EarlySwapping("embeddings", 3, 5, 0.3, 0.2, 0)
    made = making.made("What is the house?", ListFiller())
    assert len(made) == 3
    few = making.made("What films featured Doyle?", ListFiller(["zu"]))
    text = "What films featured Doyle?"
    assert [edited(text, edits) for _, edits in few] == [
        "What zu featured Doyle?",
        "Zu films featured Doyle?",
    ]


def test_the_whole_text_is_read_and_no_neighbour_is_a_reason() -> None:
    class Nothing(ListFiller):
        def swaps(self, text: str, **choices):
            assert text == TEXT
            assert choices["until"] == len("What films")
            assert choices["dropout"] == 0.3
            return super().swaps("unknown", **choices)

    with pytest.raises(UnscorableError, match="knows no word of this text"):
        Deviating().prompts(record(), materials(filler=Nothing()))


def test_what_is_sent_is_the_beginning_of_a_question() -> None:
    tools = materials()
    prompts = LETTERS.prompts(record(), tools)
    sent = [tools.encoder.tokenizer.decode(prompt.ids[1:]) for prompt in prompts]
    hidden = TREC.hidden([Example("d", "Who?", "Person")])
    assert sent[0] == f"{hidden}Question: What films"
    assert all(one.startswith(f"{hidden}Question: What ") for one in sent[1:])
    assert len(set(sent)) == 3
    assert {prompt.stop for prompt in prompts} == {"\n\n"}
    assert {prompt.max_new_tokens for prompt in prompts} == {len(REST) + 16}
    assert {p.max_new_tokens for p in Deviating(longest=9).prompts(record(), tools)} == {9}
    assert all(prompt.sampling.temperature == 0 for prompt in prompts)


# --- what is compared -------------------------------------------------------------------------------


def test_the_rest_and_its_label_are_compared_up_to_the_next_demonstration() -> None:
    value = seen([f" {REST}\n\nQuestion: Who", " of the old house\nAnswer Type: Entity", ""])
    assert (value.similarity[0], value.bleu[0], value.rouge[0]) == pytest.approx((1, 1, 1))
    a, b = text_encoder("letters").vectors([REST, "of the old house\nAnswer Type: Entity"])
    assert value.similarity[1] == pytest.approx(float(a @ b))
    assert value.rouge[1] == pytest.approx(4 / 12)  # the; answer type entity
    assert (value.bleu[2], value.rouge[2]) == (0, 0)
    assert 0 < value.similarity[2] < 1


def test_full_compares_whole_texts_with_the_neighbours_own_beginnings() -> None:
    signal = Deviating(encoder="letters", neighbours=2, compare="full")
    value = seen([f" {REST}", REST, f" {REST}"], signal)
    assert value.rouge[0] == 1
    whole = len(f"Question {TEXT} Answer Type Entity".split())
    assert value.rouge[1:] == pytest.approx([(whole - 1) / whole] * 2), "the swapped word"
    assert seen([f" {REST}"] * 3).rouge.tolist() == [1, 1, 1], "of the rest it has no part"


def test_rouge_may_count_what_is_written_too() -> None:
    long = f" {REST} and so on"
    assert seen([long, "", ""]).rouge[0] == 1
    f1 = seen([long, "", ""], Deviating(encoder="letters", neighbours=2, rouge="f1"))
    assert f1.rouge[0] == pytest.approx(2 * 12 / (12 + 15))


@pytest.mark.parametrize(
    "reply", ["{}", "What films {}", 'Sure: "what  films {}\n\nShall I go on?']
)
def test_in_a_chat_the_sentence_is_compared_without_its_repeated_beginning(reply: str) -> None:
    rest = "featured the character Popeye Doyle in Marseille during winter?"
    value = seen([reply.format(rest), "No.", "No."], template=as_chat(TREC))
    assert (value.bleu[0], value.rouge[0]) == pytest.approx((1, 1))
    tools = materials(template=as_chat(TREC))
    ids = LETTERS.prompts(record(), tools)[0].ids
    assert "Complete the following sentence: What films" in tools.encoder.tokenizer.decode(
        [one for one in ids if one < 256]
    )


def test_where_nothing_is_written_there_is_a_reason() -> None:
    with pytest.raises(UnscorableError, match=SILENT):
        seen(["", " \n\n", "\n\nQuestion: Who"])


def test_texts_are_private_and_their_numbers_are_not() -> None:
    assert DeviatingTexts.private
    assert not Deviating.private
    value = seen([f" {REST}"] * 3)
    assert all(
        isinstance(one, np.ndarray) and one.dtype.kind == "f" for one in vars(value).values()
    )


# --- another model's opinion ------------------------------------------------------------------------


def test_perplexity_is_that_of_what_was_written_under_another_model() -> None:
    signal = DeviatingPerplexity(written=LETTERS.texts)
    (writing,) = signal.built_on
    tools = materials()
    texts = [" one house\n\nQuestion", "", " two houses"]
    written = {writing: {"c": writing.observe(record(), tools, texts)}}
    ask = signal.ask(record(), Materials(tools.encoder, written=written))
    decode = tools.encoder.tokenizer.decode
    assert [decode(request.continuation) for request in ask.requests] == ["one house", "two houses"]
    with Store() as store:
        engine = Engine(FakeTarget(), store)
        engine.ensure(ask.requests)
        answers = ask.read([engine.answer(request) for request in ask.requests])
    value = signal.observe(answers)
    by_hand = [-sum(answer.logprob.tolist()) / len(answer.logprob) for answer in answers]
    assert value.values == pytest.approx(by_hand)
    assert isinstance(value, Perplexities)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["", " one", " two"], SILENT),
        (
            [" one", "", "\n\nQuestion"],
            "the model writes nothing after neighbours of the beginning",
        ),
    ],
)
def test_perplexity_needs_both_sides(texts: list[str], reason: str) -> None:
    signal = DeviatingPerplexity(written=LETTERS.texts)
    (writing,) = signal.built_on
    tools = materials()
    written = {writing: {"c": writing.observe(record(), tools, texts)}}
    with pytest.raises(UnscorableError, match=reason):
        signal.ask(record(), Materials(tools.encoder, written=written))
    gone = {writing: {"c": UnscorableError("why")}}
    with pytest.raises(UnscorableError, match="why"):
        signal.ask(record(), Materials(tools.encoder, written=gone))
    with pytest.raises(UnscorableError, match=SILENT):
        signal.ask(record(), tools)


def test_a_plan_foresees_as_many_questions() -> None:
    signal = DeviatingPerplexity(written=LETTERS.texts)
    ask = signal.ask(record(), Materials(materials().encoder, foreseeing=True))
    assert len(ask.requests) == 3


def test_the_control_is_of_what_the_control_has_written() -> None:
    signal = DeviatingPerplexity(written=LETTERS.texts)
    beside = as_control(signal)
    assert (beside.of, beside.writer) == (SURROGATE, REFERENCE)
    assert beside.built_on[0].of == REFERENCE
    both = Observations(("c",), {signal: {"c": 1}, beside: {"c": 2}, LETTERS: {"c": 3}})
    assert both.seen_as_target(REFERENCE).values == {signal: {"c": 2}}
    assert as_control(beside) == beside


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prefix": 1.0}, r"got prefix=1.0, expected a share between 0 and 1"),
        ({"dropout": 1.0}, "got dropout=1.0"),
        ({"longest": 0}, "got longest=0"),
        ({"replacements": 0}, "got replacements=0"),
        ({"neighbours": 0}, "got neighbours=0"),
        ({"filler": ""}, "got no filler"),
        ({"encoder": ""}, "got no encoder"),
        ({"compare": "x"}, "got compare='x', expected one of suffix, full"),
        ({"rouge": "x"}, "got rouge='x', expected one of recall, f1"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Deviating(**fields)
