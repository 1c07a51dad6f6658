import hashlib
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

from unseen.attacks.optimization_gap import OptimizationGap
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import AccessError, TargetError
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.one_step import OneStep
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget
from unseen.targets.limited import LimitedTarget
from unseen.types import Record, Turn

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


def gains(target, records, attack, store=None):
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    models = {"target": Model(target, encoder)}
    if store is not None:
        seen, cost = collect(attack.signals(), records, models, store=store)
        return attack.score(seen), cost
    with Store() as kept:
        seen, cost = collect(attack.signals(), records, models, store=kept)
    return attack.score(seen), cost


def slow(folder: Path, records: list[Record], attack: OptimizationGap) -> dict[str, float]:
    """Algorithm by the book: for each batch a fresh model, one step, one record at a time."""
    target = HFTarget(folder, dtype="float64")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)

    def loglik(model, record):
        encoded = encoder.encode(record)
        ids = torch.tensor([encoded.ids])
        logp = model(input_ids=ids).logits[0].log_softmax(-1)
        places = [t for t, scored in enumerate(encoded.scored) if scored]
        return torch.stack([logp[t - 1, encoded.ids[t]] for t in places])

    scores = {}
    for batch in OneStep(batch=attack.batch, seed=attack.seed).batches(records):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        before = {r.id: loglik(model, r).mean().item() for r in batch}
        loss = -torch.cat([loglik(model, r) for r in batch]).mean()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                # Adam's first step: its moments, corrected for their start, are g and g squared.
                weight.sub_(attack.learning_rate * weight.grad / (weight.grad.abs() + 1e-8))
        for record in batch:
            scores[record.id] = before[record.id] - loglik(model, record).mean().item()
    return scores


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_equals_the_formula(tmp_path: Path, family: str) -> None:
    folder = tiny.folder(tmp_path / family, family)
    records, attack = some(7), OptimizationGap(batch=3, learning_rate=1e-3)
    found, _ = gains(HFTarget(folder, dtype="float64"), records, attack)
    by_hand = slow(folder, records, attack)
    assert found.ids == tuple(record.id for record in records)
    assert found.values == pytest.approx([by_hand[id_] for id_ in found.ids], abs=1e-6)
    assert (found.values < 0).all(), "a step on a record makes it likelier"


def digest(target: HFTarget) -> str:
    made = hashlib.sha256()
    for name, weight in target.model.named_parameters():
        made.update(name.encode() + weight.detach().numpy().tobytes())
        assert not weight.requires_grad
        assert weight.grad is None
    return made.hexdigest()


def test_all_weights_are_as_before_whatever_happens(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    examples = [encoder.encode(record) for record in some(3)]
    before = digest(target)
    with target.after_step(examples, learning_rate=1e-2):
        assert any(weight.requires_grad for weight in target.model.parameters())
    assert digest(target) == before
    with pytest.raises(KeyboardInterrupt), target.after_step(examples, learning_rate=1e-2):
        raise KeyboardInterrupt
    assert digest(target) == before


def test_where_there_is_an_adapter_it_alone_takes_the_step(tmp_path: Path) -> None:
    from unseen.training.finetune import finetune
    from unseen.training.recipe import Recipe
    from unseen.training.saving import save

    folder = tiny.folder(tmp_path / "base", "llama")
    base = HFTarget(folder, dtype="float32")
    encoder = RecordEncoder(base.tokenizer, Layout(), limit=base.max_length)
    examples = [encoder.encode(record) for record in some(4)]
    save(finetune(base.model, examples, Recipe(method="lora", epochs=1)), folder, tmp_path / "lora")
    target = HFTarget(tmp_path / "lora", dtype="float32")
    names = {name for name, weight in target.model.named_parameters()}
    with target.after_step(examples, learning_rate=1e-2):
        learning = {n for n, weight in target.model.named_parameters() if weight.requires_grad}
    assert learning
    assert all("lora_" in name for name in learning)
    with target.without_adapter().after_step(examples, learning_rate=1e-2):
        learning = {n for n, weight in target.model.named_parameters() if weight.requires_grad}
    assert learning == {name for name in names if "lora_" not in name}


def test_what_is_stored_needs_no_step(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float64")
    records, attack = some(5), OptimizationGap(batch=2)
    with Store() as store:
        first, cost = gains(target, records, attack, store)
        assert cost.scored["target"] == 2 * len(records)
        target.after_step = lambda *_, **__: pytest.fail("a step was taken")
        again, cost = gains(target, records, attack, store)
    assert cost.scored["target"] == 0
    assert again.values.tolist() == first.values.tolist()


def test_who_is_in_a_batch_follows_from_texts_alone() -> None:
    records = some(50)
    batches = OneStep().batches(records)
    assert [len(batch) for batch in batches] == [13, 13, 12, 12]
    assert OneStep().batches(records[::-1]) == batches
    assert OneStep(seed=1).batches(records) != batches
    assert OneStep().batches([]) == []


def test_half_precision_and_less_access_are_refused(tmp_path: Path) -> None:
    folder = tiny.folder(tmp_path / "m", "llama")
    with pytest.raises(TargetError, match="a small step is lost in weights in bfloat16"):
        gains(HFTarget(folder, dtype="bfloat16"), some(2), OptimizationGap())
    for target in (
        FakeTarget(),
        LimitedTarget(HFTarget(folder, dtype="float32"), Access.LOGIT),
    ):
        with pytest.raises(AccessError, match="OneStep needs weights access"):
            gains(target, some(2), OptimizationGap())
    limited = LimitedTarget(HFTarget(folder, dtype="float64"), Access.WHITE_BOX)
    assert len(gains(limited, some(2), OptimizationGap())[0].ids) == 2


@pytest.mark.parametrize("given", [{"batch": 0}, {"learning_rate": 0.0}, {"learning_rate": np.inf}])
def test_impossible_choices(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        OptimizationGap(**given)
