"""The training loop against a slow twin, and what it promises: equal runs, exact labels, files that load."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from examples import VOCABULARY
from examples import some_examples as _examples
from hypothesis import given
from hypothesis import strategies as st
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from unseen.errors import ConfigError, ModelError, StoreError, TargetError, UsageError
from unseen.training.finetune import Recipe, batch_loss, batches, finetune, save
from unseen.types import Encoded

FAMILIES = (*tiny.FAMILIES, "gemma2")


def _slow_loss(model: torch.nn.Module, examples: list[Encoded]) -> float:
    """The same loss, one record and one token at a time, without padding."""
    total, count = 0.0, 0
    for example in examples:
        logits = model(input_ids=torch.tensor([example.ids])).logits[0]
        for place in range(1, len(example.ids)):
            if example.scored[place]:
                total -= torch.log_softmax(logits[place - 1], dim=-1)[example.ids[place]].item()
                count += 1
    return total / count


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_of_a_padded_batch_is_the_loss_record_by_record(family: str, holes: bool) -> None:
    model = tiny.model(family, VOCABULARY)
    examples = _examples(holes=holes)
    with torch.inference_mode():
        assert batch_loss(model, examples).item() == pytest.approx(
            _slow_loss(model, examples), rel=1e-7
        )


def test_gradient_of_a_padded_batch_is_the_weighted_mean_of_the_records() -> None:
    model = tiny.model("llama", VOCABULARY)
    examples = _examples()
    batch_loss(model, examples).backward()
    got = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    counts = [int(e.scored.sum()) for e in examples]
    for example, count in zip(examples, counts, strict=True):
        (batch_loss(model, [example]) * count / sum(counts)).backward()
    for together, alone in zip(got, [w.grad for w in model.parameters()], strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("accumulate", [2, 3, 99])
def test_a_step_in_parts_is_the_step(accumulate: int) -> None:
    """Parts count by their scored tokens: equal parts of unequal answers would be another loss."""
    runs, losses = [], []
    for parts in (1, accumulate):
        told: list[float] = []
        recipe = Recipe(batch_size=10, accumulate=parts, epochs=2, learning_rate=1e-3)
        model = tiny.model("llama", VOCABULARY)
        finetune(
            model, _examples(25), recipe, progress=lambda _s, _n, loss, to=told: to.append(loss)
        )
        runs.append(model.state_dict())
        losses.append(told)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for name, value in runs[0].items():
        torch.testing.assert_close(value, runs[1][name], rtol=1e-5, atol=1e-6)


def test_prompt_tokens_are_context_and_never_labels() -> None:
    """Output rows of tokens that occur in prompts only get the gradient of a wrong answer, p, and no -1."""
    model = tiny.model("llama", VOCABULARY)
    head = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.lm_head.weight = head  # untied, so that reading a token leaves no trace in the head
    model.config.tie_word_embeddings = False
    ids, scored = (7, 8, 9, 20, 21, 22), np.array([False] * 3 + [True] * 3)
    asked: list[torch.Tensor] = []
    hook = model.lm_head.register_forward_pre_hook(lambda _, args: asked.append(args[0]))
    batch_loss(model, [Encoded(ids, scored)]).backward()
    hook.remove()
    hidden = asked[0].detach()[0]
    assert len(hidden) == 3  # the head is asked at scored positions only
    wrong = torch.softmax(hidden @ head.detach().T, dim=-1)
    wrong[torch.arange(3), torch.tensor([20, 21, 22])] -= 1
    torch.testing.assert_close(head.grad, wrong.T @ hidden / 3)


def test_pad_equal_to_end_is_still_learned() -> None:
    """The token that pads is learned where it ends an answer, and only there."""
    model = tiny.model("llama", VOCABULARY)
    model.config.pad_token_id = 2
    ends = Encoded((5, 6, 7, 2), np.array([False, True, True, True]))
    longer = Encoded(
        (5, 6, 7, 8, 9, 2, 0), np.array([False, True, True, True, False, False, False])
    )
    expected = _slow_loss(model, [ends, longer])
    assert batch_loss(model, [ends, longer]).item() == pytest.approx(expected, rel=1e-7)
    without_end = Encoded(ends.ids, np.array([False, True, True, False]))
    assert _slow_loss(model, [without_end, longer]) != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_goes_down(method: str, family: str) -> None:
    examples = _examples(16)
    model = tiny.model(family, VOCABULARY, dtype=torch.float32)
    before = batch_loss(model, examples).item()
    told: list[tuple[int, int, float]] = []
    recipe = Recipe(method=method, epochs=6, batch_size=4, learning_rate=5e-3)
    trained = finetune(
        model, examples, recipe, progress=lambda step, steps, loss: told.append((step, steps, loss))
    )
    assert batch_loss(trained, examples).item() < before - 0.3
    assert [step for step, _, _ in told] == list(range(1, 25))
    assert {steps for _, steps, _ in told} == {24} == {recipe.steps(16)}
    assert all(math.isfinite(loss) for _, _, loss in told)
    assert not any(module.training for module in trained.modules())


@pytest.mark.parametrize("method", ["full", "lora"])
def test_equal_runs_give_equal_weights_and_leave_the_global_state(method: str) -> None:
    recipe = Recipe(method=method, batch_size=3, dropout=0.1, seed=4)
    before = torch.get_rng_state()
    runs = []
    for noise in (0, 1):
        torch.rand(noise)
        state = torch.get_rng_state()
        model = finetune(tiny.model("gpt2", VOCABULARY), _examples(), recipe)
        assert torch.equal(state, torch.get_rng_state())
        runs.append({name: value.clone() for name, value in model.state_dict().items()})
    torch.set_rng_state(before)
    assert runs[0].keys() == runs[1].keys()
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    other = finetune(
        tiny.model("gpt2", VOCABULARY), _examples(), Recipe(method=method, batch_size=3, seed=5)
    ).state_dict()
    assert not all(torch.equal(runs[0][name], other[name]) for name in runs[0])


def test_dropout_is_off_unless_asked_for() -> None:
    losses: dict[float, list[float]] = {}
    for rate in (0.0, 0.1):
        told = losses.setdefault(rate, [])
        model = tiny.model("gpt2", VOCABULARY)  # with dropout layers of 0.1
        expected = _slow_loss(model, _examples(4))
        recipe = Recipe(batch_size=4, epochs=1, dropout=rate)
        finetune(
            model, _examples(4), recipe, progress=lambda _s, _n, loss, to=told: to.append(loss)
        )
        assert (losses[rate][0] == pytest.approx(expected, rel=1e-9)) == (rate == 0)


def test_lora_changes_nothing_but_the_adapter() -> None:
    model = tiny.model("llama", VOCABULARY)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = finetune(model, _examples(), Recipe(method="lora", learning_rate=1e-2))
    with trained.disable_adapter(), torch.inference_mode():
        plain = trained(torch.tensor([[1, 2, 3]])).logits
    clean = tiny.model("llama", VOCABULARY)
    with torch.inference_mode():
        assert torch.equal(plain, clean(torch.tensor([[1, 2, 3]])).logits)
    assert all(torch.equal(before[name], value) for name, value in clean.state_dict().items())


def test_half_precision_weights_are_trained_in_float32() -> None:
    model = tiny.model("llama", VOCABULARY, dtype=torch.bfloat16)
    trained = finetune(model, _examples(), Recipe(learning_rate=1e-6))
    assert {weight.dtype for weight in trained.parameters()} == {torch.float32}
    start = tiny.model("llama", VOCABULARY, dtype=torch.bfloat16).float().state_dict()
    assert all(not torch.equal(start[name], w) for name, w in trained.named_parameters())


def test_bfloat16_passes_still_learn_in_float32() -> None:
    examples = _examples()
    model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
    before = batch_loss(model, examples).item()
    told: list[float] = []
    recipe = Recipe(dtype="bfloat16", epochs=6, learning_rate=5e-3)
    trained = finetune(model, examples, recipe, progress=lambda _s, _n, loss: told.append(loss))
    assert {weight.dtype for weight in trained.parameters()} == {torch.float32}
    assert batch_loss(trained, examples).item() < before - 0.3
    assert told[0] == pytest.approx(before, rel=0.05)


def test_after_epoch_sees_the_model_in_evaluation_mode() -> None:
    model = tiny.model("gpt2", VOCABULARY)
    seen: list[tuple[int, bool, float]] = []

    def look(epoch: int, model: torch.nn.Module) -> None:
        with torch.inference_mode():
            seen.append((epoch, model.training, batch_loss(model, _examples()).item()))

    finetune(
        model, _examples(), Recipe(epochs=3, dropout=0.1, learning_rate=1e-2), after_epoch=look
    )
    assert [(epoch, training) for epoch, training, _ in seen] == [
        (1, False),
        (2, False),
        (3, False),
    ]
    assert seen[0][2] > seen[1][2] > seen[2][2]


def test_a_loss_that_explodes_is_an_error_that_names_the_rate() -> None:
    model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
    recipe = Recipe(learning_rate=1e38, epochs=20, schedule="constant")
    with pytest.raises(
        TargetError, match=r"no longer a finite number after \d+ steps? at learning rate"
    ):
        finetune(model, _examples(), recipe)
    assert not model.training


def test_a_broken_model_is_not_blamed_on_the_rate() -> None:
    model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = math.nan
    with pytest.raises(TargetError, match="untrained model"):
        finetune(model, _examples(), Recipe())


def test_nothing_to_learn() -> None:
    model = tiny.model("llama", VOCABULARY)
    prompt_only = Encoded((1, 2, 3), np.zeros(3, dtype=bool))
    # The first token has nothing before it, so nothing foretells it.
    first_only = Encoded((1, 2), np.array([True, False]))
    with pytest.raises(UsageError, match="no examples"):
        finetune(model, [], Recipe())
    with pytest.raises(UsageError, match="none of the 2 examples"):
        finetune(model, [prompt_only, first_only], Recipe())
    with pytest.raises(UsageError, match="token id 300"):
        finetune(model, [Encoded((1, 300), np.array([False, True]))], Recipe())
    adapted = finetune(model, _examples(2), Recipe(method="lora", epochs=1))
    with pytest.raises(UsageError, match="adapter already"):
        finetune(adapted, _examples(2), Recipe())


def test_targets_that_the_model_does_not_have() -> None:
    recipe = Recipe(method="lora", lora_targets=("c_attn",))
    with pytest.raises(ConfigError, match="c_attn"):
        finetune(tiny.model("llama", VOCABULARY), _examples(2), recipe)
    some = Recipe(method="lora", lora_targets=r".*layers\.1\..*(q|v)_proj", epochs=1)
    model = finetune(tiny.model("llama", VOCABULARY), _examples(2), some)
    learned = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert len(learned) == 4
    assert all(".layers.1.self_attn." in name for name in learned)


def test_examples_without_labels_are_left_out() -> None:
    prompt_only = Encoded((1, 2, 3), np.zeros(3, dtype=bool))
    runs = [
        finetune(tiny.model("llama", VOCABULARY), examples, Recipe()).state_dict()
        for examples in (_examples(5), [*_examples(5), prompt_only])
    ]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


@given(
    lengths=st.lists(st.integers(1, 50), max_size=90),
    size=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_batches_have_every_index_once(lengths: list[int], size: int, seed: int) -> None:
    made = batches(lengths, size, np.random.default_rng(seed))
    assert sorted(i for batch in made for i in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in made)
    assert len(made) == math.ceil(len(lengths) / size)
    assert made == batches(lengths, size, np.random.default_rng(seed))


def test_batches_pad_little_and_differ_by_epoch() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(40, 160, 256).tolist()
    first, second = batches(lengths, 8, rng), batches(lengths, 8, rng)
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}

    def padded(made: list[tuple[int, ...]]) -> int:
        return sum(len(b) * max(lengths[i] for i in b) for b in made)

    at_random = [tuple(range(start, start + 8)) for start in range(0, 256, 8)]
    assert padded(first) / sum(lengths) < 1.15
    assert padded(at_random) / sum(lengths) > 1.3


def test_schedules() -> None:
    rate = 2e-3
    cosine = [Recipe(learning_rate=rate).rate(step, 10) for step in range(10)]
    assert cosine[0] == rate
    assert cosine[5] == pytest.approx(rate / 2)
    assert cosine == sorted(cosine, reverse=True)
    assert 0 < cosine[-1] < 0.05 * rate
    linear = Recipe(learning_rate=rate, schedule="linear", warmup=0.2)
    assert [linear.rate(step, 10) / rate for step in range(10)] == pytest.approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )
    assert {Recipe(schedule="constant").rate(step, 7) for step in range(7)} == {2e-4}


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "dora"},
        {"schedule": "step"},
        {"dtype": "float16"},
        {"epochs": 0},
        {"accumulate": 0},
        {"bits": 5},
        {"virtual_tokens": 0},
        {"batch_size": 0},
        {"lora_rank": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"warmup": 1.0},
        {"dropout": -0.1},
        {"weight_decay": math.nan},
        {"max_grad_norm": -1.0},
        {"seed": -1},
    ],
)
def test_recipes_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Recipe(**wrong)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "base", dtype=torch.float32)


def test_a_full_model_loads_again(base: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base)
    trained = finetune(model, _examples(), Recipe(learning_rate=1e-2))
    save(trained, base, tmp_path / "out")
    ids = torch.tensor([[3, 4, 5, 6]])
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    with torch.inference_mode():
        assert torch.equal(again(ids).logits, trained(ids).logits)
    tokenizers = [AutoTokenizer.from_pretrained(place) for place in (base, tmp_path / "out")]
    assert tokenizers[0].chat_template == tokenizers[1].chat_template == tiny.CHAT_TEMPLATE
    assert len({tuple(t("Mina owes 4").input_ids) for t in tokenizers}) == 1
    assert not [f for f in (tmp_path / "out").iterdir() if f.suffix in (".bin", ".pt", ".pkl")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base", "out"]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_loads_again(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = AutoModelForCausalLM.from_pretrained("base")
    trained = finetune(model, _examples(), Recipe(method="lora", learning_rate=1e-2))
    save(trained, base, Path("out"))
    said = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == str(base)  # in full, from wherever it is read
    again = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(said["base_model_name_or_path"]), tmp_path / "out"
    ).eval()
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.inference_mode():
        assert torch.equal(again(ids).logits, trained(ids).logits)
        with again.disable_adapter():
            assert not torch.allclose(again(ids).logits, trained(ids).logits, atol=1e-3)
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()


def test_saving_where_it_cannot_be_saved(base: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base)
    with pytest.raises(StoreError, match="exists already"):
        save(model, base, base)
    with pytest.raises(StoreError, match="cannot write"):
        save(model, base, base / "config.json" / "out")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match="no tokenizer"):
        save(model, empty, tmp_path / "out")
    assert not (tmp_path / "out").exists()
