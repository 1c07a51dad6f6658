"""Defences that change what the model writes."""

import dataclasses

import numpy as np
import pytest
from scripted import Scripted, copying, played, pool

from unseen.data.templates import Layout, RecordEncoder
from unseen.defenses import create
from unseen.defenses.rewrite_filter import RewriteFilter
from unseen.errors import ConfigError
from unseen.prompts.templates import PAPERS
from unseen.prompts.trials import Game
from unseen.runs.collect import Model
from unseen.scoring.generation import Generation
from unseen.scoring.store import Store
from unseen.signals.answered import Answer, Answered
from unseen.signals.flipped import FlippedText
from unseen.targets.access import Access, InsideTarget, LogprobTarget, Withheld
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.types import GREEDY, Batch, Prompt, Request, Sampling

ASK = "Rewrite the following sentence in different words, keep its meaning:\n"


def shouting(text: str) -> str:
    """Rewrites in capitals, after an empty line, and talks on."""
    said = text.partition(ASK)[2].partition("\n")[0].partition("<|end|>")[0]
    return f'\n"{said.upper()}"\nand more'


def model(target: FakeTarget) -> Model:
    return Model(target, RecordEncoder(target.tokenizer, Layout(), limit=target.max_length))


def encoded(text: str) -> list[int]:
    return FakeTokenizer().encode(text)


def said(target: LogprobTarget, text: str, **options: object) -> str:
    (ids,) = target.generate([encoded(text)], **({"max_new_tokens": 99} | options))
    return target.tokenizer.decode(ids)


def parrot(text: str) -> str:
    """Says again what it is told."""
    return text


@pytest.mark.parametrize("chat", [True, False])
def test_a_filter_puts_answers_into_other_words(chat: bool) -> None:
    inner = Scripted(parrot)
    rewriter = Scripted(shouting, tokenizer=FakeTokenizer(chat=chat))
    target = RewriteFilter(by="other").target(inner, {"other": model(rewriter)})
    assert said(target, " one two three four") == " ONE TWO THREE FOUR"
    assert said(target, " one two three") == " one two three", "short answers are labels"
    assert said(target, "a b c d\nAnswer", stop="\n") == "A B C D\n", "where it stops, it stops"
    ending = "The same in different words:"
    assert rewriter.prompts[0].endswith("<|end|><|assistant|>" if chat else ending)
    assert ASK + "one two three four" in rewriter.prompts[0]
    assert said(target, "\na b c d\nAnswer", one_line=True) == "\nA B C D\n"
    assert (RewriteFilter().helpers, create("rewrite_filter[by=x]").helpers) == (("",), ("x",))


class Rambling(Scripted):
    """Writes all that it has room for, whatever may end it, as an endpoint does."""

    def generate(self, prompts, **how):
        return super().generate(prompts, **(how | {"one_line": False}))


@pytest.mark.parametrize("kind", [Scripted, Rambling])
def test_a_label_passes_a_filter_whatever_the_model_goes_on_with(kind: type[Scripted]) -> None:
    def rule(text: str) -> str:
        return " Number\n\nQuestion: What is the name of it?\nAnswer Type: Entity"

    signals = (Answered(longest=60), FlippedText(cap=3, longest=60))
    plain = kind(rule)
    filtered = RewriteFilter().target(kind(rule), {"": model(Scripted(shouting))})
    before, after = (played(signals, one, game=Game(trials=4)) for one in (plain, filtered))
    for case in before.cases:
        one, other = (of.observations.get(signals[0], case.id) for of in (before, after))
        assert one == other == Answer(int(case.example.label == "Number"), 1)
        one, other = (of.observations.get(signals[1], case.id) for of in (before, after))
        assert one.counts.tolist() == other.counts.tolist()
        assert one.counts.tolist() == [0 if label == "Number" else 3 for label in case.wrong]


def test_a_filter_lets_nothing_through_that_it_cannot_rewrite() -> None:
    narrow = FakeTarget(max_length=30)
    target = RewriteFilter().target(Scripted(parrot), {"": model(narrow)})
    assert said(target, " one two three four") == " "

    class Silent(FakeTarget):
        def generate(self, prompts, **options):
            return [[Withheld.REFUSED] for _ in prompts]

    target = RewriteFilter().target(Scripted(parrot), {"": model(Silent())})
    assert said(target, "one two three four") == ""
    target = RewriteFilter().target(Silent(), {"": model(Scripted(shouting))})
    assert target.generate([encoded("x")], max_new_tokens=9) == [[Withheld.REFUSED]]


def test_answers_alone_are_those_in_company_and_are_never_cut() -> None:
    def growing(text: str) -> str:
        return "a b c d e f g h"

    helpers = {"": model(Scripted(shouting))}
    target = RewriteFilter(fewest=3).target(Scripted(growing), helpers)
    ids = tuple(encoded("x"))
    prompts = [Prompt(ids, n) for n in (3, 5, 15)]
    with Store() as store:
        writing = Generation(target, store)
        writing.ensure(prompts)
        together = [target.tokenizer.decode(writing.answer(prompt)) for prompt in prompts]
    alone = [said(target, "x", max_new_tokens=prompt.max_new_tokens) for prompt in prompts]
    assert together == alone == ["a b", "A B C", "A B C D E F G H"]


def test_a_list_of_labels_lets_nothing_else_through() -> None:
    labels = PAPERS["trec"].labels
    target = create("label_filter").target(Scripted(parrot), {}, labels)
    right = {
        " Number": " Number",
        " number, or so I think": " Number",
        " It is a Location.": " Location",
        " Either Number or Location": " ",
        "What is the longest river?": "",
        "": "",
        " Entity\nQuestion: the next": " Entity",
    }
    assert {text: said(target, text) for text in right} == right
    assert said(target, " entity, say\nAnswer", stop="\n") == " Entity\n", (
        "where it stops, it stops"
    )


def test_a_list_of_labels_needs_labels() -> None:
    free = dataclasses.replace(PAPERS["trec"], labels=None)
    for refused in (
        lambda: create("label_filter").template(free),
        lambda: create("label_filter").target(Scripted(parrot), {}),
    ):
        with pytest.raises(ConfigError, match="needs labels"):
            refused()


def test_lists_of_other_labels_have_other_fingerprints() -> None:
    prints = {
        create("label_filter").target(FakeTarget(), {}, PAPERS[name].labels).fingerprint
        for name in ("trec", "agnews", "dbpedia")
    }
    assert len(prints) == 3


def test_sampling_draws_whatever_is_asked_for() -> None:
    inner = FakeTarget(seed=5)
    target = create("sampling[temperature=1.5,top_k=9,seed=2]").target(inner, {})
    draws = Sampling(1.5, 9, 1.0, 2)
    right = inner.generate([encoded("abc")], max_new_tokens=20, sampling=draws)
    for asked in (GREEDY, Sampling(0.1, 1)):
        assert target.generate([encoded("abc")], max_new_tokens=20, sampling=asked) == right
    assert right != inner.generate([encoded("abc")], max_new_tokens=20)
    n = len(target.generate([encoded("abc")], max_new_tokens=20, sampling=Sampling(fewest=20))[0])
    assert n == 20, "how long an answer is at least is the question's"


def test_probabilities_are_what_they_were_and_the_inside_is_not_shown() -> None:
    inner = FakeTarget(access=Access.WHITE_BOX)
    target = create("sampling").target(inner, {})
    assert isinstance(target, LogprobTarget)
    assert not isinstance(target, InsideTarget)
    assert target.access is Access.LOGIT
    batch = Batch((), (Request((1, 2), (3, 4)),))
    np.testing.assert_array_equal(target.execute(batch)[0].logprob, inner.execute(batch)[0].logprob)
    assert target.top_token([[1, 2]]) == inner.top_token([[1, 2]])
    ids, p = target.next_token_probabilities([[1, 2]], top=3)
    assert ids.shape == p.shape == (1, 3)
    assert target.describe() == inner.describe()
    assert (target.name, target.max_length) == (inner.name, inner.max_length)


def test_another_defence_has_another_fingerprint() -> None:
    inner, helpers = FakeTarget(), {"": model(FakeTarget()), "x": model(FakeTarget(seed=1))}
    specs = ("sampling", "sampling[seed=1]", "rewrite_filter", "rewrite_filter[by=x]",
             "rewrite_filter[fewest=5]", "sampling+rewrite_filter", "rewrite_filter+sampling")  # fmt: skip
    prints = [create(spec).target(inner, helpers).fingerprint for spec in specs]
    assert len({*prints, inner.fingerprint}) == len(specs) + 1


def test_drawn_answers_are_rewritten_in_either_order() -> None:
    helpers = {"": model(Scripted(shouting))}
    inner = FakeTarget(seed=5)
    one, two = (
        create(spec).target(inner, helpers)
        for spec in ("sampling+rewrite_filter[fewest=1]", "rewrite_filter[fewest=1]+sampling")
    )
    assert said(one, "abc", max_new_tokens=8) == said(two, "abc", max_new_tokens=8)


def test_a_filter_takes_what_repeat_lives_on() -> None:
    from unseen.attacks.repeat import Repeat

    attack = Repeat(encoder="letters")
    plain = played(attack.signals(), Scripted(copying), examples=pool(60))
    assert plain.auc(attack) == 1

    def forgetting(text: str) -> str:
        return "something else entirely"

    target = RewriteFilter(fewest=1).target(Scripted(copying), {"": model(Scripted(forgetting))})
    kept = played(attack.signals(), target, examples=pool(60))
    assert kept.auc(attack) < 0.75
