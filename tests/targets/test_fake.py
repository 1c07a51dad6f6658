from typing import Any

import numpy as np
import pytest

from unseen.errors import UsageError
from unseen.targets.access import Access, LogprobTarget, stats_of_one
from unseen.targets.fake import CHAT_TEMPLATE, VOCABULARY, FakeTarget, FakeTokenizer
from unseen.types import Batch, Request, TokenStats, Turn

PRIVATE = "Mina Okafor of Harrow Lane owes 412.70 since 3 March."
OTHER = "Jonas Weber of Market Road owes 388.10 since 9 April."


def asked(target: Any, text: str, *, before: Any = "") -> TokenStats:
    ids = [256, *target.tokenizer.encode(before + text)]
    n = 1 + len(before.encode())
    return stats_of_one(target, Request(tuple(ids[:n]), tuple(ids[n:])))


def test_is_a_target() -> None:
    assert isinstance(FakeTarget(), LogprobTarget)
    assert FakeTarget().describe()["provider"] == "fake"


def test_statistics_equal_the_formulas() -> None:
    target = FakeTarget([PRIVATE])
    answer = asked(target, PRIVATE)
    logits = target.logits([256, *PRIVATE.encode()])[:-1]
    for t, token in enumerate(PRIVATE.encode()):
        p = np.exp(logits[t]) / np.exp(logits[t]).sum()
        logp = np.log(p)
        mean = (p * logp).sum()
        assert answer.logprob[t] == pytest.approx(logp[token], abs=1e-12)
        assert answer.mean[t] == pytest.approx(mean, abs=1e-12)
        assert answer.sd[t] == pytest.approx(np.sqrt((p * (logp - mean) ** 2).sum()), abs=1e-12)
        assert answer.rank[t] == (logp > logp[token]).sum()
        assert answer.argmax[t] == logp.argmax()


@pytest.mark.parametrize("context", ["", "Mina", "東京 😀"])
@pytest.mark.parametrize("text", ["a", PRIVATE, OTHER * 3])
def test_alone_equals_batched_and_prefixed(context: str, text: str) -> None:
    target = FakeTarget([text])
    ids = tuple(target.tokenizer.encode(text))
    context = (256, *target.tokenizer.encode(context))
    row = Request(context, ids)
    batched = target.execute(Batch(context[:-1], (Request((1,), (2, 3)), row)))[1]
    np.testing.assert_array_equal(stats_of_one(target, row).logprob, batched.logprob)


def test_remembers_what_it_has_seen() -> None:
    target = FakeTarget([PRIVATE])
    assert asked(target, PRIVATE).logprob.mean() > asked(target, OTHER).logprob.mean() + 0.5
    base = target.reference
    assert abs(asked(base, PRIVATE).logprob.mean() - asked(base, OTHER).logprob.mean()) < 0.5


def test_repeats_what_the_context_says() -> None:
    target = FakeTarget()
    repeated = asked(target, OTHER, before=OTHER).logprob.mean()
    assert repeated > asked(target, OTHER, before=PRIVATE).logprob.mean() + 0.1


def test_only_the_logit_rung_gives_moments() -> None:
    answer = asked(FakeTarget(access=Access.LOGPROB), PRIVATE)
    assert answer.mean is None
    assert answer.rank is None
    np.testing.assert_array_equal(answer.logprob, asked(FakeTarget(), PRIVATE).logprob)


def test_counts_what_it_was_asked() -> None:
    target = FakeTarget()
    target.execute(Batch((), (Request((1,), (2,)), Request((1,), (3,)))))
    asked(target, PRIVATE)
    assert target.n_executed == 3


def test_fingerprint_follows_what_changes_answers() -> None:
    prints = [
        FakeTarget(),
        FakeTarget([PRIVATE]),
        FakeTarget([PRIVATE], strength=3),
        FakeTarget(seed=1),
        FakeTarget(access=Access.LOGPROB),
        FakeTarget(tokenizer=FakeTokenizer(bos=False)),
    ]
    assert len({target.fingerprint for target in prints}) == len(prints)
    assert FakeTarget([PRIVATE], name="a").fingerprint == FakeTarget([PRIVATE]).fingerprint
    assert FakeTarget([PRIVATE], seed=4).reference.fingerprint == FakeTarget(seed=4).fingerprint


def test_generates_greedily_what_top_token_says() -> None:
    target = FakeTarget([PRIVATE], strength=50)
    prompt = [256, *PRIVATE[:20].encode()]
    (made,) = target.generate([prompt], max_new_tokens=30)
    assert target.tokenizer.decode(made) == PRIVATE[20:50]
    assert target.top_token([prompt]) == made[:1]
    assert len(target.generate([prompt], max_new_tokens=3)[0]) == 3


def test_generation_stops_at_the_end_token() -> None:
    target = FakeTarget(["The end.<|end|>more and more"], strength=50)
    (made,) = target.generate([[256, *b"The en"]], max_new_tokens=30)
    assert made == [*b"d.", 257]


@pytest.mark.parametrize("text", ["", "plain", "東京 😀 ١٢٣ שלום", "<|user|>hi<|end|>", "<|nope|>"])
def test_tokenizer_round_trip(text: str) -> None:
    tokenizer = FakeTokenizer()
    ids = tokenizer.encode(text)
    assert all(0 <= id_ < VOCABULARY for id_ in ids)
    assert tokenizer.decode(ids) == text.replace("<|user|>", "").replace("<|end|>", "")


def test_special_tokens_are_one_id_each() -> None:
    assert FakeTokenizer().encode("<|begin|>a<|end|><|assistant|>") == [256, 97, 257, 260]


def test_renders_conversations_and_explains_refusals() -> None:
    tokenizer = FakeTokenizer()
    turns = (Turn("user", "hi"), Turn("assistant", "ho"))
    said = tokenizer.render(turns[:1], template=CHAT_TEMPLATE, add_generation_prompt=True)
    assert said == "<|user|>hi<|end|><|assistant|>"
    assert tokenizer.render(turns, template=CHAT_TEMPLATE, add_generation_prompt=False) == (
        "<|user|>hi<|end|><|assistant|>ho<|end|>"
    )
    for template in ("{{ raise_exception('no') }}", "{% for %}", "{{ messages[9].content.x.y }}"):
        with pytest.raises(UsageError, match="the chat template cannot be used"):
            tokenizer.render(turns, template=template, add_generation_prompt=False)
