import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from unseen.attacks.grad_norm import GradNorm
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import AccessError, TargetError, UnscorableError
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import Observations
from unseen.signals.gradient_norm import GradientNorm, Norm
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget
from unseen.targets.limited import LimitedTarget
from unseen.targets.looks import NormLook
from unseen.types import Passage, Record, Turn

WORDS = ("fox", "dog", "Mina", "owes", "fever", "sleep", "quick", "brown", "lazy", "Harrow")


def some(n: int) -> list[Record]:
    rng = np.random.default_rng(3)
    return [
        Record(
            f"r{i}",
            (
                Turn("user", " ".join(rng.choice(WORDS, size=3))),
                Turn("assistant", " ".join(rng.choice(WORDS, size=rng.integers(2, 9)))),
            ),
        )
        for i in range(n)
    ]


def scored(target, records, attack, store=None):
    model = Model(target, RecordEncoder(target.tokenizer, Layout(), limit=target.max_length))
    if store is None:
        with Store() as kept:
            return scored(target, records, attack, kept)
    seen, cost = collect(attack.signals(), records, {"target": model}, store=store)
    return attack.score(seen), cost


def slow(model, tokenizer, record: Record, *, tokens: str, only: str = "") -> float:
    """By the book: the record alone, its loss, all of its gradient."""
    encoded = RecordEncoder(tokenizer, Layout(), limit=512).encode(record)
    weights = [weight for name, weight in model.named_parameters() if only in name]
    for weight in weights:
        weight.requires_grad_()
    logp = model(input_ids=torch.tensor([encoded.ids])).logits[0].log_softmax(-1)
    places = [t for t, counts in enumerate(encoded.scored) if counts]
    if tokens == "first":
        places = places[:1]
    loss = -torch.stack([logp[t - 1, encoded.ids[t]] for t in places]).mean()
    gradients = torch.autograd.grad(loss, weights)
    for weight in weights:
        weight.requires_grad_(requires_grad=False)
    return -np.log(np.sqrt(sum(float((g**2).sum()) for g in gradients)))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("tokens", ["all", "first"])
def test_equals_the_formula(tmp_path: Path, family: str, tokens: str) -> None:
    target = HFTarget(tiny.folder(tmp_path / family, family), dtype="float64")
    records = some(7)
    scores, _ = scored(target, records, GradNorm(tokens=tokens))
    expected = [slow(target.model, target.tokenizer, one, tokens=tokens) for one in records]
    assert scores.ids == tuple(record.id for record in records)
    assert scores.values == pytest.approx(expected, rel=1e-7)
    assert not any(weight.requires_grad for weight in target.model.parameters())


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from unseen.training.finetune import finetune
    from unseen.training.recipe import Recipe
    from unseen.training.saving import save

    where = tmp_path_factory.mktemp("adapter")
    folder = tiny.folder(where / "base", "llama", dtype=torch.float32)
    base = HFTarget(folder, dtype="float32")
    encoder = RecordEncoder(base.tokenizer, Layout(), limit=base.max_length)
    examples = [encoder.encode(record) for record in some(4)]
    save(finetune(base.model, examples, Recipe(method="lora", epochs=1)), folder, where / "lora")
    return where / "lora"


def test_of_an_adapter_alone(adapter: Path) -> None:
    target, records = HFTarget(adapter, dtype="float64"), some(5)
    whole, own = (scored(target, records, GradNorm(weights=w))[0] for w in ("all", "adapter"))
    expected = [
        slow(target.model, target.tokenizer, one, tokens="all", only="lora_") for one in records
    ]
    assert own.values == pytest.approx(expected, rel=1e-7)
    assert (own.values > whole.values).all(), "a part is shorter than the whole"
    with pytest.raises(TargetError, match="has no adapter"):
        scored(target.without_adapter(), records, GradNorm(weights="adapter"))


@pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("bits", [4, 8])
def test_of_an_adapter_on_quantised_weights(adapter: Path, bits: int) -> None:
    target, records = HFTarget(adapter, bits=bits), some(5)
    found = scored(target, records, GradNorm(weights="adapter"))[0].values
    expected = [
        slow(target.model, target.tokenizer, one, tokens="all", only="lora_") for one in records
    ]
    assert found == pytest.approx(expected, abs=1e-3)
    with pytest.raises(TargetError, match="quantised: its weights have no gradient") as refused:
        scored(target, records, GradNorm())
    assert "weights=adapter" in str(refused.value.fix)


def test_half_precision_needs_no_step(tmp_path: Path) -> None:
    folder, records = tiny.folder(tmp_path / "m", "llama"), some(6)
    exact = scored(HFTarget(folder, dtype="float32"), records, GradNorm())[0]
    half = scored(HFTarget(folder, dtype="bfloat16"), records, GradNorm())[0]
    assert half.values == pytest.approx(exact.values, abs=0.1)


def test_what_is_stored_is_not_looked_at_again(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float64")
    records = some(5)
    with Store() as store:
        first, cost = scored(target, records, GradNorm(), store)
        assert cost.scored["target"] == len(records)
        target.look = lambda *_: pytest.fail("it was looked at")
        again, cost = scored(target, records, GradNorm(), store)
        assert cost.scored["target"] == 0
    assert again.values.tolist() == first.values.tolist()


def test_less_access_is_refused(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float32")
    for limited in (FakeTarget(), LimitedTarget(target, Access.LOGIT)):
        with pytest.raises(AccessError, match="GradientNorm needs weights access"):
            scored(limited, some(2), GradNorm())
    whole = LimitedTarget(target, Access.WHITE_BOX)
    assert len(scored(whole, some(2), GradNorm())[0].ids) == 2


def test_what_has_no_norm_is_counted() -> None:
    (signal,) = GradNorm().signals()
    values = {"a": Norm(0.0, 3, 0), "b": Norm(0.5, 3, 0)}
    scores = GradNorm().score(Observations(("a", "b"), {signal: values}))
    assert scores.ids == ("b",)
    assert scores.values[0] == pytest.approx(np.log(2))
    assert scores.unscored == {"a": "the gradient is zero"}
    with pytest.raises(UnscorableError, match="no finite norm"):
        GradientNorm().see([{"norm": np.array(np.inf), "n_tokens": 1, "literal": 0}])


def test_impossible_choices() -> None:
    with pytest.raises(ValueError, match="got tokens='last', expected one of first, all"):
        GradNorm(tokens="last")
    with pytest.raises(ValueError, match="got weights='head', expected one of all, adapter"):
        GradNorm(weights="head")


def test_looks_of_one_kind_have_one_key() -> None:
    assert NormLook().key != NormLook("adapter").key
    assert NormLook().together == NormLook().together != NormLook("adapter").together
    assert Passage((1, 2, 3), (2,)).places == (2,)
