"""What is written after prompts is the same whether what they begin alike with is read once or in each."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import OutOfMemoryError
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import PAPERS, Example
from unseen.prompts.trials import Game
from unseen.targets.access import stats_of_one
from unseen.targets.huggingface import HFTarget
from unseen.types import Batch, Encoded, Request, Sampling

RNG = np.random.default_rng(0)
PROMPT = tuple(RNG.integers(2, 256, size=40).tolist())
"""What many prompts begin with; longer than the windows of models that have any."""
WARM = Sampling(1.0, seed=3)


def after(prompt: tuple[int, ...], *lengths: int) -> list[tuple[int, ...]]:
    """Prompts that begin with one, and go on for so many ids."""
    return [prompt + tuple(RNG.integers(2, 256, size=n).tolist()) for n in lengths]


PROMPTS = [*after(PROMPT, 3, 9, 9, 1), PROMPT, *after(PROMPT[:23], 2, 30), (5,), (5, 6, 7)]


def model(family: str) -> Any:
    """Windows that are shorter than the prompts, no position ids, no keys and values at all."""
    common = {"vocab_size": 400, "hidden_size": 32, "initializer_range": 0.3}
    if family == "mistral":
        config = MistralConfig(
            **common,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=8,
        )
        return MistralForCausalLM(config)
    if family == "bloom":
        return BloomForCausalLM(BloomConfig(**common, n_layer=2, n_head=4))
    return MambaForCausalLM(MambaConfig(**common, num_hidden_layers=2))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Model folders by family, made when they are first asked for."""
    root = tmp_path_factory.mktemp("models")

    def folder(family: str) -> Path:
        where = root / family
        if where.exists():
            return where
        if family in (*tiny.FAMILIES, "gemma2"):
            return tiny.folder(where, family)
        with torch.random.fork_rng():
            torch.random.manual_seed(0)
            model(family).save_pretrained(where)
        tiny.tokenizer().save_pretrained(where)
        return where

    return folder


def plain(folder: Path, dtype: str = "float32") -> HFTarget:
    """Reads every prompt anew."""
    target = HFTarget(folder, dtype=dtype)
    target.remembers = False
    return target


def slow_greedy(model: Any, prompt: tuple[int, ...], n: int, end: int) -> list[int]:
    """Every token from a whole forward pass of one row."""
    ids = list(prompt)
    while len(ids) < len(prompt) + n and (len(ids) == len(prompt) or ids[-1] != end):
        with torch.inference_mode():
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("family", [*tiny.FAMILIES, "gemma2", "mistral", "bloom"])
def test_writes_what_whole_passes_find_likeliest(
    folders: Callable[[str], Path], family: str
) -> None:
    target = HFTarget(folders(family), dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(folders(family), dtype=torch.float32).eval()
    end = target.tokenizer.eos_id
    for _ in range(2):  # from nothing, and from what was read
        made = target.generate(PROMPTS, max_new_tokens=7)
        assert made == [slow_greedy(model, prompt, 7, end) for prompt in PROMPTS]
    assert target.remembers is True
    assert target.n_read < sum(map(len, PROMPTS))


@pytest.mark.parametrize("sampling", [Sampling(), WARM, Sampling(0.8, top_k=20, fewest=3)])
@pytest.mark.parametrize("most_tokens", [0, 60, 10**6])
def test_rounds_of_growing_prompts_are_as_if_read_anew(
    folders: Callable[[str], Path], sampling: Sampling, most_tokens: int
) -> None:
    target, anew = HFTarget(folders("llama"), dtype="float32"), plain(folders("llama"))
    assert target.memory_tokens * target._token_bytes <= 2**29
    target._continuing.memory.most_bytes = most_tokens * target._token_bytes
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    how = {"sampling": sampling, "numbers": [0, 1] * len(PROMPTS), "stop": "\n"}
    for n in (5, 1, 12):
        made = target.generate(prompts, max_new_tokens=n, **how)
        assert made == anew.generate(prompts, max_new_tokens=n, **how)
        assert target._continuing.memory.n_bytes <= target._continuing.memory.most_bytes
        prompts = [(*prompt, 7, i % 5, 9) for i, prompt in enumerate(prompts)]
    assert anew.n_read == sum(2 * len(prompt) for prompt in PROMPTS) * 3 + 18 * 3 * (1 + 2)


def test_what_prompts_begin_alike_with_is_read_once_and_then_only_what_is_new(
    folders: Callable[[str], Path],
) -> None:
    target = HFTarget(folders("llama"), dtype="float32")
    prompts = after(PROMPT, *[4] * 12)
    target.generate(prompts, max_new_tokens=1)
    assert target.n_read == len(PROMPT) + 12 * 4
    target.generate(prompts, max_new_tokens=1)
    assert target.n_read == len(PROMPT) + 12 * 4 + 12, "the last token tells what comes next"
    longer = [(*prompt, 9, 8, i) for i, prompt in enumerate(prompts)]
    before = target.n_read
    target.generate([*longer, *longer], max_new_tokens=2)
    assert target.n_read == before + 12 * 3
    two = [*after(PROMPT[:30], *[20] * 3), *after(PROMPT[:20] + (1,) * 20, *[20] * 3)]
    before = target.n_read
    target.generate(two, max_new_tokens=1)
    assert target.n_read == before + 20 + 6 * 20, "a beginning of their own is read once too"


def test_rows_that_have_ended_cost_no_more(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(folders("llama"), dtype="float32")
    prompts = after(PROMPT, 3, 3, 3, 3)
    free = target.generate(prompts, max_new_tokens=9)
    stop = next(
        letter
        for letter in target.tokenizer.decode(free[0])
        if 0 < sum(letter in target.tokenizer.decode(made) for made in free) < 4
    )
    rows = []
    forward = target._continuing._forward
    monkeypatch.setattr(
        target._continuing,
        "_forward",
        lambda inputs: rows.append(len(inputs.ids)) or forward(inputs),
    )
    made = target.generate(prompts, max_new_tokens=9, stop=stop)
    assert sum(rows) == sum(map(len, made)) < sum(map(len, free))


def test_what_has_no_keys_and_values_is_read_anew(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("mamba"), dtype="float32")
    made = target.generate(PROMPTS, max_new_tokens=5)
    assert target.remembers is False
    assert target.memory_tokens == 0
    assert made == [target.generate([prompt], max_new_tokens=5)[0] for prompt in PROMPTS]
    assert target.n_read == 2 * sum(map(len, PROMPTS))


def requests(prompts: Sequence[tuple[int, ...]]) -> tuple[Request, ...]:
    """Answers of one token, of several that begin alike, and one that ends within another."""
    answers = ((9,), (11,), (12, 13), (12, 14, 15), (12, 13, 16))
    return tuple(Request(prompt, answer) for prompt in prompts for answer in answers)


@pytest.mark.parametrize("family", [*tiny.FAMILIES, "gemma2", "mistral", "bloom"])
@pytest.mark.parametrize("most_tokens", [0, 60, 10**6])
def test_likelihoods_behind_growing_prompts_are_those_of_whole_passes(
    folders: Callable[[str], Path], family: str, most_tokens: int
) -> None:
    # Of these, one masks filling with what is infinite in double precision, one rounds distances.
    exact = family not in ("gemma2", "bloom")
    target = HFTarget(folders(family), dtype="float64" if exact else "float32")
    assert target.memory_tokens > 0
    target._continuing.memory.most_bytes = most_tokens * target._token_bytes
    anew = plain(folders(family), "float64" if exact else "float32")
    prompts = PROMPTS
    for _ in range(3):
        rows = requests(prompts)
        answers = target.execute(Batch((), rows, growing=True))
        for row, one in zip(rows, answers, strict=True):
            other = stats_of_one(anew, row)
            for part in ("logprob", "mean", "sd"):
                close = {"rtol": 0, "atol": 1e-9 if exact else 1e-4}
                np.testing.assert_allclose(getattr(one, part), getattr(other, part), **close)
            np.testing.assert_array_equal(one.rank, other.rank)
            np.testing.assert_array_equal(one.argmax, other.argmax)
        assert target._continuing.memory.n_bytes <= target._continuing.memory.most_bytes
        prompts = [(*prompt, 7, i, 9) for i, prompt in enumerate(prompts)]


def test_of_growing_questions_what_is_new_is_read(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"), dtype="float32")
    prompts = after(PROMPT, *[4] * 3)
    of_one_token = [Request(prompt, (answer,)) for prompt in prompts for answer in range(5)]
    target.execute(Batch((), tuple(of_one_token), growing=True))
    assert target.n_read == len(PROMPT) + 3 * 4, "the same text, whatever comes next"
    longer = [
        Request((*row.context, *range(50, 56)), (*row.continuation, answer))
        for row in of_one_token for answer in (2, 3)
    ]  # fmt: skip
    before = target.n_read
    target.execute(Batch((), tuple(longer), growing=True))
    # Six tokens once; then the last of them again, to foretell the first of two, and that one.
    assert target.n_read == before + 3 * (6 + 5 * 2)


@pytest.mark.parametrize("fault", ["other numbers", "an error"])
def test_a_memory_that_does_not_work_is_not_used(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def wrong(self: HFTarget, inputs: Any) -> Any:
        if fault == "an error":
            msg = "shape mismatch"
            raise RuntimeError(msg)
        return right(self, inputs).roll(1, -1)

    right = HFTarget._logits_after
    monkeypatch.setattr(HFTarget, "_logits_after", wrong)
    target = HFTarget(folders("llama"), dtype="float32")
    made = target.generate(PROMPTS, max_new_tokens=5)
    assert target.remembers is False
    assert made == plain(folders("llama")).generate(PROMPTS, max_new_tokens=5)


def test_it_is_tried_again_on_prompts_that_are_much_longer(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"), dtype="float32")
    tried = []
    for n in (10, 18, 22, 30, 45, 20):
        target.generate(after((), n), max_new_tokens=1)
        tried.append(target._longest_tried)
    assert tried == [10, 10, 22, 22, 45, 45]


def test_what_does_not_fit_is_said_and_forgotten(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(folders("llama"), dtype="float32")
    target.generate(PROMPTS, max_new_tokens=1)

    def fails(*_: Any, **__: Any) -> Any:
        msg = "can't allocate memory"
        raise RuntimeError(msg)

    with monkeypatch.context() as broken:
        broken.setattr(target._decoder, "forward", fails)
        with pytest.raises(OutOfMemoryError):
            target.generate(PROMPTS, max_new_tokens=1)
    assert target._continuing.memory.n_bytes == 0
    fresh = HFTarget(folders("llama"), dtype="float32")
    with monkeypatch.context() as broken:
        broken.setattr(fresh._decoder, "forward", fails)
        with pytest.raises(OutOfMemoryError):
            fresh.generate(PROMPTS, max_new_tokens=1)
    assert target.generate(PROMPTS, max_new_tokens=3) == fresh.generate(PROMPTS, max_new_tokens=3)
    assert fresh.remembers is True, "a lack of memory says nothing of the model"


def test_other_weights_have_not_read_anything(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"), dtype="float32")
    before = target.generate(PROMPTS, max_new_tokens=6)
    example = Encoded(PROMPT, np.ones(len(PROMPT), dtype=bool))
    with target.after_step([example], learning_rate=0.1):
        assert target._continuing.memory.n_bytes == 0
        stepped = target.generate(PROMPTS, max_new_tokens=6)
        target.remembers = False
        assert stepped == target.generate(PROMPTS, max_new_tokens=6) != before
        target.remembers = True
    assert target._continuing.memory.n_bytes == 0
    assert target.generate(PROMPTS, max_new_tokens=6) == before


@pytest.mark.slow
def test_a_real_model_writes_the_same_behind_prompts(smollm2: Path) -> None:
    target, anew = HFTarget(smollm2, dtype="float32"), plain(smollm2)
    records = people(12, seed=4)
    labels = ("Number", "Location", "Person")
    pool = [Example(one.id, one.turns[0].content, labels[i % 3]) for i, one in enumerate(records)]
    cases = Game(trials=2, shots=4).cases(pool)
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    behind = HiddenPrompts.of(PAPERS["trec"], encoder, cases)

    def prompts(n_shown: int) -> list[tuple[int, ...]]:
        return [
            behind.prompt(
                case.id,
                behind.shown(case.example.text, wrong) * n_shown + behind.asked(case.example.text),
            )
            for case in cases
            for wrong in case.wrong
        ]

    begun = [behind.prompt(case.id, behind.begun("Who is")) for case in cases]
    for asked, n in ((begun, 12), (prompts(0), 5), (prompts(1), 5), (prompts(3), 5)):
        made = target.generate(asked, max_new_tokens=n, stop="\n")
        assert made == anew.generate(asked, max_new_tokens=n, stop="\n")
        assert any(target.tokenizer.decode(ids).strip() for ids in made)
    assert target.remembers is True
    assert 4 * target.n_read < anew.n_read
