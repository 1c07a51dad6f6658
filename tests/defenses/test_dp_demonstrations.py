import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import norm
from scripted import pool

from unseen.data.templates import Layout, RecordEncoder
from unseen.defenses import create, label
from unseen.defenses._gaussian import exact_epsilon, loss_epsilon, noise_for, spent
from unseen.defenses.dp_demonstrations import (
    Asking,
    DPDemonstrations,
    mean_over_all,
    noisy_argmax,
    normalised,
)
from unseen.errors import AccessError, ConfigError
from unseen.prompts.templates import PAPERS, Example, PromptTemplate
from unseen.prompts.trials import Case, Game
from unseen.runs.collect import Model
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget, FakeTokenizer

TREC = PAPERS["trec"]
POOL = pool(120)


class Told(FakeTarget):
    """A model whose next tokens are those of the text that it was shown first, as far as it goes."""

    def __init__(self, **options: object) -> None:
        super().__init__(max_length=100_000, **options)
        self.asked: list[str] = []

    def next_token_probabilities(self, prompts, *, top=100, among=None):
        p = np.full((len(prompts), 261), 1e-4)
        for i, prompt in enumerate(prompts):
            text = self.tokenizer.decode(prompt)
            self.asked.append(text)
            said = text.rpartition('Text: "')[2]
            shown = text.partition('Text: "')[2].partition('"\n')[0]
            if shown.startswith(said) and len(shown) > len(said):
                p[i, ord(shown[len(said)])] = 1.0
        p /= p.sum(axis=1, keepdims=True)
        if among is None:
            among = np.argsort(-p, axis=1, kind="stable")[:, :top]
        return among, np.take_along_axis(p, among, axis=1)


def model(target: FakeTarget | None = None) -> Model:
    target = target or Told()
    return Model(target, RecordEncoder(target.tokenizer, Layout(), limit=target.max_length))


def game(**choices: object) -> tuple[tuple[Case, ...], tuple[Sequence[Example], ...]]:
    one = Game(**({"trials": 4} | choices))
    return one.cases(POOL), one.halves(POOL)


# --- what it guarantees ---------------------------------------------------------------------------


def test_epsilon_of_one_record_is_what_the_gaussian_gives() -> None:
    """The loss alone gives 31.5; what also counts by how much it is exceeded is a little less."""
    assert loss_epsilon(0.69, 14, 1e-3) == pytest.approx(31.5, rel=0.01)
    assert loss_epsilon(0.39, 99, 1e-3) == pytest.approx(404, rel=0.01)
    assert loss_epsilon(0.45, 99, 1e-3) == pytest.approx(313, rel=0.01)
    assert exact_epsilon(0.69, 14, 1e-3) == pytest.approx(30.67, abs=0.01)
    assert exact_epsilon(0.39, 99, 1e-3) < loss_epsilon(0.39, 99, 1e-3)
    assert exact_epsilon(100.0, 1, 0.1) == 0


@pytest.mark.parametrize(("sigma", "n", "delta"), [(0.69, 14, 1e-3), (3.0, 1, 1e-6), (8, 99, 0.01)])
def test_at_that_epsilon_the_gaussian_fails_with_chance_delta(
    sigma: float, n: int, delta: float
) -> None:
    """The twin: the privacy loss of N(0, 1) against N(mu, 1), integrated on a grid."""
    mu, epsilon = math.sqrt(n) / sigma, exact_epsilon(sigma, n, delta)
    x = np.linspace(-40, 40 + mu, 2_000_001)
    p, q = norm.pdf(x, mu), norm.pdf(x)
    failed = np.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0), x)
    assert failed == pytest.approx(delta, rel=1e-3)


def test_noise_for_an_epsilon_guarantees_it() -> None:
    for epsilon, sigma in ((4, 3.1), (8, 1.8)):
        found = noise_for(epsilon, 1.0, 14, 1e-3)
        assert found == pytest.approx(sigma, rel=0.03)
        assert spent(found, 1.0, 14, 1e-3) == (pytest.approx(epsilon), "exact Gaussian")


@pytest.mark.slow
def test_drawing_amplifies_as_in_the_paper() -> None:
    epsilon, how = spent(0.39, 20 / 30_000, 100, 1 / 30_000)
    assert (epsilon, how) == (pytest.approx(4, rel=0.06), "PRV")
    assert spent(noise_for(4.0, 20 / 30_000, 100, 1 / 30_000), 20 / 30_000, 100, 1 / 30_000)[
        0
    ] == pytest.approx(4, rel=0.02)


def test_one_record_alone_is_the_papers_setting_and_degenerate() -> None:
    defense = create("dp_demonstrations[m=1,n=1,private=1,sigma=0.69,delta=0.001]")
    found = defense.guarantee(*game(), TREC)
    assert found.epsilon == pytest.approx(30.67, abs=0.01)
    assert found.loss == pytest.approx(31.5, rel=0.01)
    assert (found.rate, found.releases, found.n_private) == (1, 14, 1)
    assert found.degenerate
    assert "random tokens" in found.notes[-1]
    assert "not for production" in found.notes[0]
    tame = DPDemonstrations(m=4, n=1, sigma=1.0, private=4).guarantee(*game(), TREC)
    assert not tame.degenerate
    assert len(tame.notes) == 2


def test_demonstrations_of_one_label_add_up_and_those_of_others_do_not() -> None:
    cases, halves = game(shots=6, trials=8)
    defense = DPDemonstrations(m=1, n=1, sigma=2.0, delta=1e-3)
    most = max(max(sum(d.label == e.label for e in c.demos) for d in c.demos) for c in cases)
    assert most > 1
    assert defense.guarantee(cases, halves, TREC).releases == 14 * most
    alone = DPDemonstrations(m=1, n=1, sigma=2.0, delta=1e-3, private=1)
    assert alone.guarantee(cases, halves, TREC).releases == 14
    agnews = PAPERS["agnews"]
    assert alone.guarantee(cases, halves, agnews).releases == 99


def test_delta_is_one_over_the_private_records_unless_it_is_given() -> None:
    found = DPDemonstrations(m=2, n=1, private=2, sigma=2.0).guarantee(*game(), TREC)
    assert found.delta == 1 / 60


@pytest.mark.parametrize(
    ("spec", "problem", "fix"),
    [
        ("dp_demonstrations", "guarantees nothing without noise", "epsilon=8"),
        ("dp_demonstrations[sigma=1,epsilon=1]", "both sigma and epsilon", "leave one of them out"),
        ("dp_demonstrations[sigma=-1]", "expected a number above 0", ""),
        ("dp_demonstrations[sigma=1,m=0]", "got m=0, expected at least 1", ""),
        ("dp_demonstrations[sigma=1,delta=1]", "below 1", ""),
        ("dp_demonstrations[sigma=1,private=3]", "draws m n = 20", "m=3,n=1,private=3"),
    ],
)
def test_what_makes_no_sense_is_refused(spec: str, problem: str, fix: str) -> None:
    with pytest.raises(ConfigError) as raised:
        create(spec)
    assert problem in str(raised.value)
    assert fix in str(raised.value)


def test_too_few_private_records_are_refused() -> None:
    defense = DPDemonstrations(m=10, n=3, sigma=1.0)
    with pytest.raises(ConfigError, match=r"m n = 30 private records of a label, and \w+ has \d+"):
        defense.guarantee(*game(), TREC)


# --- whose records it is made from ------------------------------------------------------------------


@pytest.mark.parametrize("private", [0, 1, 4])
@pytest.mark.parametrize("shots", [1, 3])
def test_the_record_in_its_place_is_among_those_that_a_demonstration_is_made_from(
    private: int, shots: int
) -> None:
    cases, halves = game(shots=shots, trials=10)
    defense = DPDemonstrations(m=1, n=1, sigma=1.0, private=private)
    for case, found in zip(cases, defense._private(cases, halves), strict=True):
        half = halves[0] if case.demos[0] in halves[0] else halves[1]
        for (demo, records), shown in zip(found, case.demos, strict=True):
            assert demo == shown
            assert demo in records
            assert {one.label for one in records} == {demo.label}
            assert len({one.id for one in records}) == len(records)
            assert set(records) <= set(half)
            assert len(records) == (private or sum(one.label == demo.label for one in half))
        assert (case.example in [one for _, records in found for one in records]) == case.member


@pytest.mark.parametrize("shots", [1, 3])
def test_asked_twice_the_owner_has_the_record_once(shots: int) -> None:
    cases, halves = game(shots=shots, trials=6, paired=True)
    found = DPDemonstrations(m=1, n=1, sigma=1.0)._private(cases, halves)
    for at in range(0, len(cases), 2):
        (inside, outside), case = found[at : at + 2], cases[at]
        place = case.position
        with_it, without = ({one.id for one in side[place][1]} for side in (inside, outside))
        assert case.example.id in with_it
        assert case.example.id not in without
        if cases[at + 1].demos[place].label == case.example.label:
            assert len(with_it) == len(without)


# --- how it is written ----------------------------------------------------------------------------


def test_the_prompt_of_the_paper_byte_by_byte() -> None:
    demo = Example("", "Who?", "Person")
    assert Asking.of(TREC).begun([demo], "Person") == (
        "Given a label of answer type, generate a question based on the given answer type "
        'accordingly.\n\nAnswer Type: "Person"\nText: "Who? END"\n\nAnswer Type: "Person"\nText: "'
    )
    assert Asking.of(PAPERS["agnews-paper"]).begun((), "World") == (
        "Given a label of news type, generate the chosen type of news accordingly.\n\n"
        'News Type: "World"\nText: "'
    )
    assert Asking.of(PAPERS["dbpedia"]).cue == "Document Type"
    own = PromptTemplate("mine", "", "Mail: {input}\nKind:", "Mail: {input}\nKind: {output}\n\n")
    assert Asking.of(own).cue == "Kind"
    assert Asking.of(own).begins.startswith("Given a label of kind, generate a text")
    assert Asking.of(PromptTemplate("free", "", "{input}", "{input} {output}\n")).cue == "Label"


def test_with_hardly_any_noise_the_private_record_comes_out() -> None:
    cases, halves = game()
    told = Told()
    defense = DPDemonstrations(m=1, n=1, private=1, sigma=1e-6, public=False, longest=80)
    made = defense.cases(cases, halves, TREC, {"": model(told)})
    for case, other in zip(cases, made, strict=True):
        assert [demo.text for demo in other.demos] == [demo.text for demo in case.demos]
        assert [demo.label for demo in other.demos] == [demo.label for demo in case.demos]
        assert (other.id, other.example, other.member) == (case.id, case.example, case.member)
        assert not {demo.id for demo in other.demos} & {demo.id for demo in case.demos}
    assert all(text.count("Text:") == 2 for text in told.asked)


def test_candidates_are_those_of_the_prompt_without_private_records() -> None:
    cases, halves = game(trials=2)
    told = Told()
    defense = DPDemonstrations(m=2, n=2, sigma=0.1, longest=3)
    defense.cases(cases, halves, TREC, {"": model(told)})
    n = [text.count("Text:") for text in told.asked]
    assert set(n) == {1, 3}
    assert n.count(3) == 2 * n.count(1)


def test_it_can_be_repeated_and_another_seed_is_another_prompt() -> None:
    cases, halves = game()

    def texts(**choices: object) -> list[str]:
        defense = DPDemonstrations(**({"m": 2, "n": 1, "sigma": 0.3, "longest": 6} | choices))
        made = defense.cases(cases, halves, TREC, {"": model(FakeTarget())})
        return [demo.text for case in made for demo in case.demos]

    assert texts() == texts()
    assert texts() != texts(seed=1)
    assert texts()[0] == texts()[1], "both cases of a trial stand behind one prompt"
    assert len(set(texts(sigma=3.0))) > 2, "each trial draws anew"


def test_alone_is_as_in_company() -> None:
    cases, halves = game(trials=20)
    defense = DPDemonstrations(m=2, n=1, sigma=0.3, longest=4)
    together = defense.cases(cases, halves, TREC, {"": model(FakeTarget())})
    pair = cases[30:32]
    assert defense.cases(pair, halves, TREC, {"": model(FakeTarget())}) == together[30:32]


def test_what_was_written_is_kept() -> None:
    class Memory(dict):
        def put(self, key: bytes, ids: tuple[int, ...]) -> None:
            self[key] = ids

    cases, halves = game()
    defense = DPDemonstrations(m=2, n=1, sigma=0.3, longest=4, public=False)
    kept, told = Memory(), Told()
    first = defense.cases(cases, halves, TREC, {"": model(told)}, kept)
    n = len(told.asked)
    assert defense.cases(cases, halves, TREC, {"": model(told)}, kept) == first
    assert len(told.asked) == n
    assert len(kept) == 4
    other = DPDemonstrations(m=2, n=1, sigma=0.4, longest=4, public=False)
    other.cases(cases, halves, TREC, {"": model(told)}, kept)
    assert len(kept) == 8


def test_a_model_that_tells_no_distribution_cannot_write() -> None:
    defense = DPDemonstrations(m=1, n=1, sigma=1.0)
    with pytest.raises(AccessError, match="needs logit access, and fake gives logprob"):
        defense.cases(*game(), TREC, {"": model(FakeTarget(access=Access.LOGPROB))})
    with pytest.raises(ConfigError, match="1 private records do not fit into the context"):
        defense.cases(*game(), TREC, {"": model(FakeTarget(max_length=120))})


# --- arithmetic -----------------------------------------------------------------------------------


def test_the_mean_over_all_tokens_is_the_mean_of_whole_distributions() -> None:
    ids = np.array([[0, 2], [2, 7]])
    p = np.array([[0.3, 0.1], [0.2, 0.2]])
    slow = np.zeros(5)
    for shares in ({0: 0.75, 2: 0.25}, {2: 1.0}):
        for token, share in shares.items():
            slow[token] += share / 2
    np.testing.assert_allclose(mean_over_all(ids, p, 5), slow)
    np.testing.assert_allclose(normalised(p).sum(axis=1), 1)


def test_noise_has_the_spread_that_is_said() -> None:
    rng = np.random.default_rng(0)
    mean, scale, n = np.array([0.5, 0.3]), 0.4, 20_000
    first = np.mean([noisy_argmax(mean, scale, rng) == 0 for _ in range(n)])
    right = norm.cdf(0.2 / (math.sqrt(2) * scale))
    assert abs(first - right) < 4 * math.sqrt(right * (1 - right) / n)


@pytest.mark.parametrize(("m", "sigma"), [(1, 0.69), (4, 1.5)])
def test_the_noise_on_a_mean_of_m_is_sqrt_2_sigma_over_m(
    monkeypatch: pytest.MonkeyPatch, m: int, sigma: float
) -> None:
    seen: list[float] = []
    module = "unseen.defenses.dp_demonstrations"
    monkeypatch.setattr(f"{module}.noisy_argmax", lambda mean, scale, rng: seen.append(scale) or 0)
    DPDemonstrations(m=m, n=1, sigma=sigma, longest=2).cases(*game(trials=1), TREC, {"": model()})
    assert set(seen) == {math.sqrt(2) / m * sigma}


def test_it_ends_at_a_line_a_mark_or_the_end() -> None:
    from unseen.defenses.dp_demonstrations import _Draft, _Writer

    class Fixed(FakeTarget):
        text = ""

        def next_token_probabilities(self, prompts, *, top=100, among=None):
            n = prompts[0][::-1].index(ord('"'))
            token = 257 if n >= len(self.text) else ord(self.text[n])
            return np.full((len(prompts), 1), token), np.ones((len(prompts), 1))

    target = Fixed()
    how = DPDemonstrations(m=1, n=1, sigma=1.0, public=False)
    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=9_999)
    for text, right in [
        ("Who? END and", "Who?"),
        ("Who?\nmore", "Who?"),
        (" Who is it? ", "Who is it?"),
        ("", ""),
        ("x" * 40, "x" * 14),
    ]:
        target.text = text
        draft = _Draft("Person", [Example("", "y", "Person")], np.random.default_rng(0))
        writer = _Writer(how, target, encoder, Asking.of(TREC), 14, 1e-9)
        writer.write([draft])
        assert writer.text(draft) == right, text
    draft.ids = FakeTokenizer().encode('Who is it?"')
    assert writer.text(draft) == "Who is it?"


def test_reads_back() -> None:
    made = create("dp_demonstrations[m=4,n=1,sigma=0.7]")
    assert label(made) == "dp_demonstrations[m=4,n=1,sigma=0.7]"
    assert made.helpers == ("",)
