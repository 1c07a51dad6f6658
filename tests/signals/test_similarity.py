import math

import numpy as np
import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import AccessError, UnscorableError
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import SURROGATE, TARGET, Materials, access_needed, key
from unseen.signals.embedding import LETTERS, text_encoder
from unseen.signals.guided import GuidedProbes
from unseen.signals.probed import MaskedProbes
from unseen.signals.retrieval import RetrievedProbes, retrievals
from unseen.signals.similarity import Measure, ProbedSimilarity, TokenSimilarity
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget
from unseen.targets.limited import LimitedTarget
from unseen.types import Record, TokenStats, Turn

RECORD = Record("r", (Turn("user", "Who?"), Turn("assistant", "Mina Okafor, of 3 Lane")))
TARGET_ = FakeTarget(["Mina Okafor, of Harrow Lane"], strength=9.0)
ENCODER = RecordEncoder(TARGET_.tokenizer, Layout(), limit=4096)


def slow(before: tuple[Record, ...] = ()) -> list[float]:
    """s_t token by token: the first choice from the logits, vectors and cosine with loops."""
    encoded = ENCODER.encode(RECORD, before=before)
    found = []
    for place in np.flatnonzero(encoded.scored):
        choice = int(TARGET_.logits(encoded.ids[:place], place - 1)[0].argmax())
        decode = TARGET_.tokenizer.decode
        a, b = text_encoder(LETTERS).vectors([decode([choice]), decode([encoded.ids[place]])])
        cosine = sum(x * y for x, y in zip(a, b, strict=True))
        found.append(math.log(max(cosine, 1e-16)))
    return found


@pytest.mark.parametrize("access", [Access.LABEL, Access.LOGPROB, Access.LOGIT])
def test_values_equal_a_slow_loop_on_every_rung(access: Access) -> None:
    probed = ProbedSimilarity(shown=MaskedProbes(probes=2))
    model = Model(LimitedTarget(TARGET_, access), ENCODER)
    with Store() as store:
        seen, cost = collect([TokenSimilarity(), probed], [RECORD], {TARGET: model}, store=store)
    assert seen.get(TokenSimilarity(), "r").values == pytest.approx(slow())
    found = seen.get(probed, "r")
    assert found.plain == pytest.approx(sum(slow()))
    masks = MaskedProbes(probes=2).made_from(RECORD)
    assert found.probed == pytest.approx([sum(slow((mask,))) for mask in masks])
    assert found.n_tokens == len(slow())
    assert cost.requests == {TARGET: 3}, "alone once for both"


def test_it_asks_no_more_than_the_likelihoods_do() -> None:
    target = FakeTarget()
    with Store() as store:
        models = {TARGET: Model(target, ENCODER)}
        collect([TokenStatistics(), TokenSimilarity()], [RECORD], models, store=store)
    assert target.n_executed == 1


def test_below_label_it_is_refused_and_what_is_not_told_is_a_reason() -> None:
    model = Model(LimitedTarget(TARGET_, Access.TEXT), ENCODER)
    with Store() as store, pytest.raises(AccessError, match="TokenSimilarity needs label access"):
        collect([TokenSimilarity()], [RECORD], {TARGET: model}, store=store)
    materials = Materials(ENCODER)
    ask = TokenSimilarity().ask(RECORD, materials)
    with pytest.raises(UnscorableError, match="does not tell its first choices"):
        TokenSimilarity().read(RECORD, materials, ask, [TokenStats(np.zeros(len(ask.keep[0])))])


def test_signals_say_what_they_need() -> None:
    assert access_needed(TokenSimilarity()) == Access.LABEL
    assert access_needed(TokenStatistics()) == Access.LOGPROB
    of_pool = ProbedSimilarity(shown=RetrievedProbes())
    assert (of_pool.needs_pool, ProbedSimilarity().needs_pool) == (True, False)
    assert retrievals([of_pool, ProbedSimilarity(), RetrievedProbes()]) == [RetrievedProbes()] * 2
    assert len({key(of_pool), key(ProbedSimilarity()), key(ProbedSimilarity(encoder="x"))}) == 3


def test_measures_refuse_what_has_no_meaning() -> None:
    assert Measure(MaskedProbes(), "model", LETTERS).signals() == (MaskedProbes(),)
    assert Measure(MaskedProbes(), "petal", LETTERS).signals()[1].of == SURROGATE
    for arguments, message in (
        ((MaskedProbes(), "other", LETTERS), "got likelihood='other'"),
        ((MaskedProbes(), "model", "minilm"), "says nothing without likelihood=petal"),
        ((GuidedProbes(), "petal", LETTERS), "no likelihoods for GuidedProbes"),
        ((MaskedProbes(), "petal", ""), "got no encoder"),
    ):
        with pytest.raises(ValueError, match=message):
            Measure(*arguments).signals()
