import contextlib
import json
import math
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from unseen.errors import ModelError, OutOfMemoryError, TargetError
from unseen.targets import huggingface
from unseen.targets.access import Access, LogprobTarget
from unseen.targets.ending import Ending
from unseen.targets.huggingface import HFTarget
from unseen.targets.sampling import chance
from unseen.types import Batch, Request, Sampling

PARTS = ("logprob", "mean", "sd")
PREFIX = tuple(range(20, 60))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Model folders by name, made when they are first asked for."""
    root = tmp_path_factory.mktemp("models")

    def folder(name: str) -> Path:
        if not (root / name).exists():
            make = {"mistral": mistral, **dict.fromkeys((*tiny.FAMILIES, "gemma2"), tiny.folder)}
            arguments = (root / name,) if name == "mistral" else (root / name, name)
            make[name](*arguments)
        return root / name

    return folder


def saved(model: Any, where: Path) -> Path:
    model.to(torch.float64).save_pretrained(where)
    tiny.tokenizer().save_pretrained(where)
    return where


def mistral(where: Path) -> Path:
    """Sliding windows shorter than a prefix."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        config = MistralConfig(
            vocab_size=400,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            sliding_window=8,
            initializer_range=0.3,
        )
        return saved(MistralForCausalLM(config), where)


def requests(n: int = 7, *, seed: int = 0, prefix: tuple[int, ...] = ()) -> tuple[Request, ...]:
    """Rows of several lengths; their scored tokens begin early, late, and span gaps."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        ids = tuple(rng.integers(0, 256, size=2 + 4 * i).tolist())
        cut = 1 + i // 2
        rows.append(Request(prefix + ids[:cut], ids[cut:]))
    return tuple(rows)


def slow(model: Any, row: Request) -> dict[str, np.ndarray]:
    """The same by the book: one row, one plain forward pass, everything in float64."""
    with torch.inference_mode():
        ids = torch.tensor([row.context + row.continuation])
        logits = model(input_ids=ids).logits[0].double()
    logits = logits[len(row.context) - 1 : -1]
    logp = torch.log_softmax(logits, -1)
    p = logp.exp()
    own = logp[torch.arange(len(logp)), torch.tensor(row.continuation)]
    mean = (p * logp).sum(-1)
    return {
        "logprob": own.numpy(),
        "mean": mean.numpy(),
        "sd": (p * (logp - mean[:, None]) ** 2).sum(-1).sqrt().numpy(),
        "rank": (logp > own[:, None]).sum(-1).numpy(),
        "argmax": logp.argmax(-1).numpy(),
    }


def plain_model(folder: Path, dtype: Any = torch.float64) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def assert_close(answers: Any, expected: Any, *, atol: float, ranks: bool = True) -> None:
    for answer, right in zip(answers, expected, strict=True):
        for part in PARTS:
            np.testing.assert_allclose(getattr(answer, part), right[part], rtol=0, atol=atol)
        if ranks:
            np.testing.assert_array_equal(answer.rank, right["rank"])
            np.testing.assert_array_equal(answer.argmax, right["argmax"])


# --- right numbers ----------------------------------------------------------------------------

ALL = [*tiny.FAMILIES, "gemma2", "mistral"]
# Gemma computes its attention weights in single precision, whatever the model's.
EXACT = {**dict.fromkeys(ALL, 1e-9), "gemma2": 1e-6}


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("family", ALL)
def test_equals_one_plain_pass_a_row(
    folders: Callable[[str], Path], family: str, padding: str
) -> None:
    if (family, padding) == ("gemma2", "left"):
        pytest.skip("what masks the filling is infinite in Gemma's attention in double precision")
    target = HFTarget(folders(family), dtype="float64", padding=padding)
    model = plain_model(folders(family))
    rows = requests()
    expected = [slow(model, row) for row in rows]
    assert_close(target.execute(Batch((), rows)), expected, atol=EXACT[family])
    alone = [target.execute(Batch((), (row,)))[0] for row in rows]
    assert_close(alone, expected, atol=EXACT[family])


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("family", ALL)
def test_a_cached_prefix_changes_nothing(
    folders: Callable[[str], Path], family: str, padding: str
) -> None:
    target = HFTarget(folders(family), dtype="float64", padding=padding)
    model = plain_model(folders(family))
    rows = requests(prefix=PREFIX)
    expected = [slow(model, row) for row in rows]
    assert_close(target.execute(Batch(PREFIX, rows)), expected, atol=EXACT[family])
    assert target.prefix_cache is True
    # The cache of the prefix is not used up or changed by a batch.
    assert_close(target.execute(Batch(PREFIX, rows[2:4])), expected[2:4], atol=EXACT[family])
    other = tuple(reversed(PREFIX))
    rows = requests(3, prefix=other)
    assert_close(
        target.execute(Batch(other, rows)), [slow(model, row) for row in rows], atol=EXACT[family]
    )


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("family", ALL)
def test_single_precision_stays_close(
    folders: Callable[[str], Path], family: str, padding: str
) -> None:
    target = HFTarget(folders(family), dtype="float32", padding=padding)
    model = plain_model(folders(family))
    for prefix in ((), PREFIX):
        rows = requests(prefix=prefix)
        answers = target.execute(Batch(prefix, rows))
        assert_close(answers, [slow(model, row) for row in rows], atol=1e-4, ranks=False)
        assert {getattr(answer, part).dtype for answer in answers for part in PARTS} == {
            np.dtype(np.float32)
        }
        assert {answer.rank.dtype for answer in answers} == {np.dtype(np.int32)}


def test_statistics_of_half_precision_are_single_precision(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"), dtype="bfloat16")
    model = plain_model(folders("llama"), torch.bfloat16)
    rows = requests()
    answers = target.execute(Batch((), rows))
    alone = [target.execute(Batch((), (row,)))[0] for row in rows]
    # What the model says is coarse; what is computed from it is not.
    assert_close(alone, [slow(model, row) for row in rows], atol=1e-5)
    assert {getattr(answer, part).dtype for answer in answers for part in PARTS} == {
        np.dtype(np.float32)
    }


def test_many_chunks_of_positions_give_the_same(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = requests(9)
    whole = HFTarget(folders("llama"), dtype="float64").execute(Batch((), rows))
    monkeypatch.setitem(huggingface._HEAD_ROWS, "cpu", 7)
    monkeypatch.setitem(huggingface._CACHE_BYTES, "cpu", 3 * 4 * 400)
    parts = HFTarget(folders("llama"), dtype="float64").execute(Batch((), rows))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one.logprob, other.logprob, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(one.rank, other.rank)


@pytest.mark.parametrize(
    ("family", "apart"), [*((family, True) for family in tiny.FAMILIES), ("gemma2", False)]
)
def test_the_head_runs_apart_only_where_that_is_what_the_model_says(
    folders: Callable[[str], Path], family: str, apart: bool
) -> None:
    target = HFTarget(folders(family), dtype="float32")
    assert target.head_apart is apart
    said = "scored positions only" if apart else "as the model runs it"
    assert target.describe()["head"] == said


def test_a_prefix_cache_that_gives_other_numbers_is_not_used(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(folders("llama"), dtype="float64")
    read = target._read_prefix
    monkeypatch.setattr(target, "_read_prefix", lambda prefix: read(prefix[::-1]))
    rows = requests(prefix=PREFIX)
    answers = target.execute(Batch(PREFIX, rows))
    assert target.prefix_cache is False
    model = plain_model(folders("llama"))
    assert_close(answers, [slow(model, row) for row in rows], atol=1e-9)


def test_a_prefix_cache_that_fails_is_not_used(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(folders("llama"), dtype="float64")

    def fails(prefix: Any) -> Any:
        msg = "shape mismatch"
        raise RuntimeError(msg)

    monkeypatch.setattr(target, "_read_prefix", fails)
    target.execute(Batch(PREFIX, requests(prefix=PREFIX)))
    assert target.prefix_cache is False


def test_without_a_prefix_cache_long_rows_are_read_in_parts(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(folders("llama"), dtype="float64", batch_tokens=100)
    target.prefix_cache = False
    widths = []
    forward = target._forward
    monkeypatch.setattr(
        target, "_forward", lambda prefix, rows: widths.append(len(rows)) or forward(prefix, rows)
    )
    rows = requests(prefix=PREFIX)
    answers = target.execute(Batch(PREFIX, rows))
    assert widths == [1] * 7 or max(widths) * max(row.length for row in rows) <= 100
    assert_close(answers, [slow(plain_model(folders("llama")), row) for row in rows], atol=1e-9)


# --- refusals ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    config = BertConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
    )
    return config, tmp_path_factory.mktemp("bert")


def test_an_encoder_is_refused(bert: tuple[Any, Path]) -> None:
    config, where = bert
    folder = saved(BertForMaskedLM(config), where / "masked")
    with pytest.raises(ModelError, match="is no causal language model"):
        HFTarget(folder)


def test_weights_that_are_no_numbers_are_an_error_when_asked(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "nan")
    model = plain_model(folder)
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    model.save_pretrained(folder)
    target = HFTarget(folder)
    with pytest.raises(TargetError, match="not finite") as raised:
        target.execute(Batch((), requests()))
    assert "float32" in str(raised.value)
    assert not isinstance(raised.value, OutOfMemoryError)


def test_another_models_tokenizer_is_noticed(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"))
    for ask in (
        lambda: target.execute(Batch((), (Request((1,), (400,)),))),
        lambda: target.top_token([[1, 400]]),
        lambda: target.generate([[400]], max_new_tokens=1),
        lambda: target.execute(Batch((), (Request((1,), (400,)),), growing=True)),
    ):
        with pytest.raises(TargetError, match="the tokenizer gives the id 400"):
            ask()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 3 bytes")])
def test_a_batch_that_does_not_fit_is_said_to_the_engine(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    target = HFTarget(folders("llama"))

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(target._decoder, "forward", fails)
    with pytest.raises(OutOfMemoryError):
        target.execute(Batch((), requests()))
    with pytest.raises(OutOfMemoryError):
        target.execute(Batch(PREFIX, requests(prefix=PREFIX)))
    assert target.prefix_cache is None


def test_other_errors_of_a_model_are_not_hidden(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(folders("llama"))

    def fails(*_: Any, **__: Any) -> Any:
        msg = "expected scalar type"
        raise RuntimeError(msg)

    monkeypatch.setattr(target._decoder, "forward", fails)
    with pytest.raises(RuntimeError, match="expected scalar type"):
        target.execute(Batch((), requests()))


# --- what it says of itself -------------------------------------------------------------------


def test_is_a_target_and_says_what_it_is(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"))
    assert isinstance(target, LogprobTarget)
    assert target.access == Access.WHITE_BOX
    assert target.describe() == {
        "provider": "hf",
        "model": str(folders("llama")),
        "architecture": "Llama",
        "dtype": "float32",
        "device": "cpu",
        "max_length": "512",
        "head": "scored positions only",
    }
    assert target.reference is None
    assert not target.has_base
    with pytest.raises(ModelError, match="is no adapter, so it has no base model"):
        target.without_adapter()


def test_the_fingerprint_knows_weights_and_precision(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "copy")
    same = HFTarget(folder).fingerprint
    assert same == HFTarget(folders("llama"), padding="left", batch_tokens=7).fingerprint
    other = HFTarget(tiny.folder(tmp_path / "other", seed=1)).fingerprint
    half = HFTarget(folder, dtype="bfloat16").fingerprint
    assert len({same, other, half}) == 3


def test_the_context_of_a_model_with_learned_positions(tmp_path: Path) -> None:
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=400, n_embd=32, n_layer=1, n_head=2, n_positions=24)
    )
    target = HFTarget(saved(model, tmp_path / "short"), dtype="float64")
    assert target.max_length == 24
    row = Request((1,), tuple(range(23)))
    shorter = Request((*PREFIX[:16], 1), (1, 2))
    model = plain_model(tmp_path / "short")
    for rows in ((row,), (row, shorter)):
        answers = target.execute(Batch((), rows))
        assert_close(answers, [slow(model, row) for row in rows], atol=1e-9)
    long = Request((*PREFIX[:16], 1), tuple(range(7)))
    answers = target.execute(Batch(PREFIX[:16], (long, shorter)))
    assert_close(answers, [slow(model, row) for row in (long, shorter)], atol=1e-9)
    (made,) = target.generate([list(range(20))], max_new_tokens=50)
    assert len(made) <= 4
    assert target.generate([list(range(24))], max_new_tokens=5) == [[]]


def test_another_model_serves_as_reference(folders: Callable[[str], Path], tmp_path: Path) -> None:
    other = tiny.folder(tmp_path / "other", seed=1)
    target = HFTarget(folders("llama"), dtype="float64", reference=str(other))
    assert target.reference.fingerprint == HFTarget(other, dtype="float64").fingerprint
    assert target.reference is target.reference


@pytest.mark.slow
def test_says_nothing_on_the_terminal(folders: Callable[[str], Path], lora: Path) -> None:
    program = f"""
from unseen.targets.huggingface import HFTarget
from unseen.targets.sampling import chance
from unseen.types import Batch, Request, Sampling
prefix = tuple(range(20))
rows = tuple(Request((*prefix, 1), (i, 2)) for i in range(2))
for folder in {str(folders("llama"))!r}, {str(lora)!r}:
    target = HFTarget(folder)
    target.execute(Batch(prefix, rows))
    target.generate([[1, 2]], max_new_tokens=3)
    target.top_token([[1, 2]])
    target.tokenizer.encode("word " * 2000)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


# --- text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*tiny.FAMILIES, "gemma2"])
def test_top_token_and_generate_agree_with_transformers(
    folders: Callable[[str], Path], family: str
) -> None:
    target = HFTarget(folders(family), dtype="float64")
    model = plain_model(folders(family))
    prompts = [[5, 6, 7], list(range(30)), [1]]
    for prompt, made, top in zip(
        prompts,
        target.generate(prompts, max_new_tokens=12),
        target.top_token(prompts),
        strict=True,
    ):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            assert top == int(model(input_ids=ids).logits[0, -1].argmax())
            right = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=12,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=target._ends(),
            )
        assert made == right[0, len(prompt) :].tolist()
        assert made[0] == top


def test_penalties_of_the_checkpoint_do_not_change_what_is_greedy(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "penalties")
    settings = {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 5,
        "repetition_penalty": 9.0,
        "no_repeat_ngram_size": 1,
        "suppress_tokens": list(range(300)),
        "max_length": 3,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    prompts = [[5, 6, 7], list(range(30))]
    plain = HFTarget(folders("llama"), dtype="float64").generate(prompts, max_new_tokens=20)
    assert HFTarget(folder, dtype="float64").generate(prompts, max_new_tokens=20) == plain


def test_generation_stops_at_the_end_token(folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "ends")
    (made,) = HFTarget(folder, dtype="float64").generate([[5, 6, 7]], max_new_tokens=12)
    settings = {"eos_token_id": made[4]}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    (shorter,) = HFTarget(folder, dtype="float64").generate([[5, 6, 7]], max_new_tokens=12)
    assert shorter == made[: made.index(made[4]) + 1]


def test_generation_stops_with_the_token_that_completes_a_string(
    folders: Callable[[str], Path], lora: Path
) -> None:
    prompts = [[5, 6, 7], list(range(2, 30)), [9]]
    for target in (HFTarget(folders("llama"), dtype="float64"), HFTarget(lora, dtype="float64")):
        decode = target.tokenizer.decode
        for sampling in (Sampling(), Sampling(1.0, seed=3)):
            free = target.generate(prompts, max_new_tokens=14, sampling=sampling)
            stop = decode(free[0])[2:4]  # it may span tokens
            stopped = target.generate(prompts, max_new_tokens=14, sampling=sampling, stop=stop)
            for made, whole in zip(stopped, free, strict=True):
                ends = [n for n in range(1, 15) if stop in decode(whole[:n])]
                assert made == whole[: min(ends, default=len(whole))]
            assert 0 < len(stopped[0]) < len(free[0])


@pytest.mark.parametrize("remembers", [True, False])
def test_generation_stops_with_the_line(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    target = HFTarget(folders("llama"), dtype="float64")
    target.remembers = remembers
    decode, prompts = target.tokenizer.decode, [[5, 6, 7], list(range(2, 30)), [9]]
    free = target.generate(prompts, max_new_tokens=14)
    # What it writes has no lines: a letter of it becomes the break.
    letter = decode(free[0])[5]
    monkeypatch.setattr(target.tokenizer, "decode", lambda ids: decode(ids).replace(letter, "\n"))
    ended = target.generate(prompts, max_new_tokens=14, one_line=True)
    ending = Ending(frozenset(), "", target.tokenizer.decode, one_line=True)
    assert ended == [ending.until(ids) for ids in free] != free


def test_no_text_ends_before_the_fewest_tokens(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "fewest")
    prompts = [[5, 6, 7], list(range(2, 30))]
    first = HFTarget(folder, dtype="float64").generate(prompts, max_new_tokens=1)
    ends = [made[0] for made in first]  # each would end at once
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    target, model = HFTarget(folder, dtype="float64"), plain_model(folder)
    ends.append(target.tokenizer.eos_id)

    def slow_greedy(prompt: list[int], n: int, fewest: int) -> list[int]:
        ids = list(prompt)
        while len(ids) < len(prompt) + n and not (len(ids) > len(prompt) and ids[-1] in ends):
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([ids])).logits[0, -1].tolist()
            for end in ends if len(ids) - len(prompt) < fewest else ():
                logits[end] = -math.inf
            ids.append(logits.index(max(logits)))
        return ids[len(prompt) :]

    assert [len(made) for made in target.generate(prompts, max_new_tokens=9)] == [1, 1]
    for fewest, n in ((4, 9), (9, 4)):
        made = target.generate(prompts, max_new_tokens=n, sampling=Sampling(fewest=fewest))
        assert made == [slow_greedy(prompt, n, fewest) for prompt in prompts]
        assert made == [
            target.generate([prompt], max_new_tokens=n, sampling=Sampling(fewest=fewest))[0]
            for prompt in prompts
        ]
        assert min(map(len, made)) >= min(fewest, n)


def slowly(model, prompt: list[int], n: int, sampling: Sampling, number: int, ends: set) -> list:
    """Every token from a whole forward pass, the next one drawn with plain loops."""
    chances = chance(prompt, sampling, number)
    ids = list(prompt)
    while len(ids) < len(prompt) + n and not (len(ids) > len(prompt) and ids[-1] in ends):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1].tolist()
        best = sorted(range(len(logits)), key=lambda i: -logits[i])
        best = best[: sampling.top_k or len(best)]
        weights = [math.exp(logits[i] / sampling.temperature) for i in best]
        kept, reached = [], 0.0
        for i, weight in zip(best, weights, strict=True):
            kept.append((i, weight))
            reached += weight
            if reached >= sampling.top_p * sum(weights):
                break
        mark, at = chances.random() * sum(weight for _, weight in kept), 0.0
        for chosen, weight in kept:  # noqa: B007 (used below)
            at += weight
            if mark < at:
                break
        ids.append(chosen)
    return ids[len(prompt) :]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0, seed=3),
        Sampling(0.7, top_k=9),
        Sampling(1.3, top_p=0.6),
        Sampling(2.0, 50, 0.9),
    ],
)
def test_drawn_texts_equal_a_slow_loop_alone_and_in_company(
    folders: Callable[[str], Path], family: str, sampling: Sampling
) -> None:
    target, model = HFTarget(folders(family), dtype="float64"), plain_model(folders(family))
    prompts, numbers = [[5, 6, 7], list(range(2, 30)), [9], [5, 6, 7]], [0, 0, 2, 1]
    together = target.generate(prompts, max_new_tokens=10, sampling=sampling, numbers=numbers)
    ends = {target.tokenizer.eos_id}
    for prompt, number, made in zip(prompts, numbers, together, strict=True):
        assert made == slowly(model, prompt, 10, sampling, number, ends)
        alone = target.generate([prompt], max_new_tokens=4, sampling=sampling, numbers=[number])
        assert alone == [made[:4]]
    assert together[0] != together[3], "another number, another text"


def test_prompts_of_unlike_lengths_go_together_only_where_filling_works(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [[5, 6, 7], list(range(2, 30)), [9]]
    target = HFTarget(folders("llama"), dtype="float64")
    target.remembers = False
    one_by_one = [target.generate([p], max_new_tokens=6)[0] for p in prompts]
    passes = []
    monkeypatch.setattr(
        target, "_continued", lambda rows, *_: passes.append(len(rows)) or [[] for _ in rows]
    )
    target.generate(prompts, max_new_tokens=6)
    target._fills = False
    target.generate(prompts, max_new_tokens=6)
    assert passes == [3, 1, 1, 1]
    monkeypatch.undo()
    assert target.generate(prompts, max_new_tokens=6) == one_by_one
    target._fills = None
    assert target.generate(prompts, max_new_tokens=6) == one_by_one


# --- tokenizers -------------------------------------------------------------------------------


def test_truncation_and_padding_of_the_tokenizer_have_no_influence(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "left")
    tok = tiny.tokenizer()
    tok.padding_side = "left"
    tok.truncation_side = "left"
    tok.model_max_length = 4
    tok.backend_tokenizer.enable_truncation(3)
    tok.backend_tokenizer.enable_padding(length=7)
    tok.save_pretrained(folder)
    one, other = HFTarget(folder, dtype="float64"), HFTarget(folders("llama"), dtype="float64")
    text = "The quick brown fox jumps over the lazy dog."
    assert one.tokenizer.encode(text) == other.tokenizer.encode(text)
    rows = requests()
    for a, b in zip(one.execute(Batch((), rows)), other.execute(Batch((), rows)), strict=True):
        np.testing.assert_array_equal(a.logprob, b.logprob)


# --- adapters ---------------------------------------------------------------------------------


@contextlib.contextmanager
def peft_warnings_ignored() -> Iterator[None]:
    with warnings.catch_warnings():
        for name in (".*is_gradient_checkpointing", "`past_key_values` is deprecated"):
            warnings.filterwarnings("ignore", message=name, category=FutureWarning)
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        yield


def save_adapter(base: Path, where: Path, config: Any) -> Path:
    """An adapter with random weights, so that it has an effect."""
    import peft

    with peft_warnings_ignored(), torch.random.fork_rng():
        torch.random.manual_seed(5)
        model = peft.get_peft_model(plain_model(base), config)
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(where, save_embedding_layers=False)
    return where


def loaded_with_peft(base: Path, adapter: Path) -> Any:
    import peft

    with peft_warnings_ignored():
        return peft.PeftModel.from_pretrained(plain_model(base), str(adapter)).eval()


@pytest.fixture(scope="module")
def lora(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    import peft

    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj", "lm_head"], task_type="CAUSAL_LM"
    )
    return save_adapter(folders("llama"), tmp_path_factory.mktemp("a") / "lora", config)


@pytest.mark.parametrize("prefix", [(), PREFIX], ids=["whole", "prefixed"])
def test_an_adapter_and_its_base_answer_as_they_are(
    folders: Callable[[str], Path], lora: Path, prefix: tuple[int, ...]
) -> None:
    target = HFTarget(lora, dtype="float64", reference="base")
    rows = requests(prefix=prefix)
    model, plain = loaded_with_peft(folders("llama"), lora), plain_model(folders("llama"))
    adapted, base = [slow(model, row) for row in rows], [slow(plain, row) for row in rows]
    gap = max(abs(a["logprob"] - b["logprob"]).max() for a, b in zip(adapted, base, strict=True))
    assert gap > 0.1
    for _ in range(2):  # in turn: neither leaves anything behind in the other
        assert_close(target.execute(Batch(prefix, rows)), adapted, atol=1e-5, ranks=False)
        assert_close(target.reference.execute(Batch(prefix, rows)), base, atol=1e-9)
    assert target.head_apart


def test_generation_and_top_token_follow_the_adapter(
    folders: Callable[[str], Path], lora: Path
) -> None:
    target = HFTarget(lora, dtype="float64", reference="base")
    plain = HFTarget(folders("llama"), dtype="float64")
    prompts = [[5, 6, 7], list(range(30))]
    assert target.reference.top_token(prompts) == plain.top_token(prompts)
    made = target.generate(prompts, max_new_tokens=9)
    assert target.reference.generate(prompts, max_new_tokens=9) == plain.generate(
        prompts, max_new_tokens=9
    )
    assert made != plain.generate(prompts, max_new_tokens=9)
    assert [one[0] for one in made] == target.top_token(prompts)


def test_an_adapter_and_its_base_remember_apart(lora: Path) -> None:
    target = HFTarget(lora, dtype="float32", reference="base")
    prompts = [list(range(2, 40)), list(range(2, 30)), [*range(2, 30), 9, 9]]
    made = []
    for one in (target, target.reference, target, target.reference):
        made.append(one.generate(prompts, max_new_tokens=9))
        assert one.remembers is True
        one.remembers = False
        assert one.generate(prompts, max_new_tokens=9) == made[-1]
        one.remembers = True
    assert made[0] != made[1]


def test_fingerprints_of_an_adapter_and_its_base(
    folders: Callable[[str], Path], lora: Path, tmp_path: Path
) -> None:
    target = HFTarget(lora, reference="base")
    plain = HFTarget(folders("llama"))
    assert target.reference.fingerprint == plain.fingerprint
    assert target.fingerprint != plain.fingerprint
    assert target.has_base
    assert target.name == str(lora)
    assert target.reference.name == f"{folders('llama')} (base)"
    assert target.describe()["adapter"] == str(lora)
    assert "adapter" not in target.reference.describe()
    assert target.reference.reference is None
    same = HFTarget(folders("llama"), adapter=shutil.copytree(lora, tmp_path / "lora"))
    assert same.fingerprint == target.fingerprint


def test_an_adapter_that_cannot_be_switched_off_leaves_its_base_alone(tmp_path: Path) -> None:
    import peft

    config = LlamaConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        attention_bias=True,
    )
    base = saved(LlamaForCausalLM(config), tmp_path / "base")
    trained = peft.LoraConfig(
        r=4, target_modules=["q_proj"], bias="lora_only", task_type="CAUSAL_LM"
    )
    target = HFTarget(save_adapter(base, tmp_path / "biased", trained), dtype="float64")
    reference = target.without_adapter()
    assert reference.fingerprint == HFTarget(base, dtype="float64").fingerprint
    assert reference.name == f"{base} (base)"
    rows, model = requests(), plain_model(base)
    target.execute(Batch((), rows))
    answers = reference.execute(Batch((), rows))
    assert_close(answers, [slow(model, row) for row in rows], atol=1e-9)


def test_base_as_reference_needs_an_adapter(folders: Callable[[str], Path]) -> None:
    target = HFTarget(folders("llama"), reference="base")
    with pytest.raises(ModelError, match="is no adapter"):
        _ = target.reference


def test_an_adapter_that_does_not_fit_its_base_is_refused(
    folders: Callable[[str], Path], lora: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"do not belong to .*gpt2"):
        HFTarget(folders("gpt2"), adapter=lora)
    from safetensors.torch import load_file, save_file

    weights = load_file(lora / "adapter_model.safetensors")
    renamed = {name.replace("q_proj", "query"): value for name, value in weights.items()}
    some = {name: value for name, value in weights.items() if "q_proj" not in name}
    for content in (renamed, some):
        folder = shutil.copytree(lora, tmp_path / str(len(content)))
        save_file(content, folder / "adapter_model.safetensors")
        with pytest.raises(ModelError, match=r"do not belong to .*llama") as raised:
            HFTarget(folder)
        assert "--base-model" in str(raised.value)


def adapter_of(kind: str) -> Any:
    import peft

    return {
        "prompt": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5),
        "p-tuning": peft.PromptEncoderConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=5, encoder_hidden_size=16
        ),
        "prefix": peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5),
        "ia3": peft.IA3Config(task_type="CAUSAL_LM"),
        "lora": peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"),
    }[kind]


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("kind", ["prompt", "p-tuning", "prefix"])
def test_virtual_tokens_in_front_shift_no_score(
    folders: Callable[[str], Path], tmp_path: Path, kind: str, padding: str
) -> None:
    adapter = save_adapter(folders("llama"), tmp_path / kind, adapter_of(kind))
    target = HFTarget(adapter, dtype="float64", padding=padding, reference="base")
    assert not target.head_apart
    assert target.max_length == 512 - 5
    model, plain = loaded_with_peft(folders("llama"), adapter), plain_model(folders("llama"))

    def by_the_book(row: Request) -> np.ndarray:
        n = 5 if kind in ("prompt", "p-tuning") else 0
        with torch.inference_mode(), peft_warnings_ignored():
            logits = model(input_ids=torch.tensor([row.context + row.continuation])).logits[0, n:]
        logp = torch.log_softmax(logits[len(row.context) - 1 : -1].double(), -1)
        return logp[torch.arange(len(logp)), torch.tensor(row.continuation)].numpy()

    for prefix in ((), PREFIX):
        rows = requests(prefix=prefix)
        for row, answer in zip(rows, target.execute(Batch(prefix, rows)), strict=True):
            np.testing.assert_allclose(answer.logprob, by_the_book(row), rtol=0, atol=1e-5)
        answers = target.reference.execute(Batch(prefix, rows))
        assert_close(answers, [slow(plain, row) for row in rows], atol=1e-9)
    prompts = [[5, 6, 7]]
    (made,) = target.generate(prompts, max_new_tokens=3)
    assert made[:1] == target.top_token(prompts)
    assert made != plain.generate(torch.tensor(prompts), max_new_tokens=3, do_sample=False)


@pytest.mark.parametrize("kind", ["prompt", "p-tuning", "prefix", "ia3", "lora"])
@pytest.mark.parametrize("family", [*tiny.FAMILIES, "gemma2"])
def test_what_an_adapter_generates_is_what_its_forward_pass_finds_likeliest(
    folders: Callable[[str], Path], tmp_path: Path, family: str, kind: str
) -> None:
    adapter = save_adapter(folders(family), tmp_path / kind, adapter_of(kind))
    target = HFTarget(adapter, dtype="float64")
    model = loaded_with_peft(folders(family), adapter)

    def slow_greedy(prompt: list[int], n: int) -> list[int]:
        ids = list(prompt)
        with torch.inference_mode(), peft_warnings_ignored():
            while len(ids) < len(prompt) + n and ids[-1] != target.tokenizer.eos_id:
                ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        return ids[len(prompt) :]

    # Two of one length, and one longer than what a sliding layer sees.
    prompts = [[5, 6, 7, 9], [40, 3, 200, 8], [*range(20, 32)]]
    greedy = [slow_greedy(p, 6) for p in prompts]
    assert target.generate(prompts, max_new_tokens=6) == greedy
    decode = target.tokenizer.decode
    stop = next(letter for letter in decode(greedy[0]) if letter.isprintable())
    stopped = target.generate(prompts, max_new_tokens=6, stop=stop)
    for made, whole in zip(stopped, greedy, strict=True):
        ends = [n for n in range(1, 7) if stop in decode(whole[:n])]
        assert made == whole[: min(ends, default=len(whole))]
    open_ended = target.generate(prompts, max_new_tokens=6, sampling=Sampling(fewest=6))
    assert [len(made) for made in open_ended] == [6, 6, 6]
    drawn = Sampling(temperature=1.0, seed=3)
    together = target.generate(prompts, max_new_tokens=6, sampling=drawn)
    alone = [target.generate([p], max_new_tokens=6, sampling=drawn)[0] for p in prompts]
    assert together == alone != greedy
    assert target._step_works is (None if kind in ("ia3", "lora") else True)
    if target._step_works:  # and without a cache
        target._step_works = False
        assert target.generate(prompts, max_new_tokens=6) == greedy
    assert target.without_adapter().generate(prompts, max_new_tokens=3) == HFTarget(
        folders(family), dtype="float64"
    ).generate(prompts, max_new_tokens=3)


@pytest.mark.parametrize("family", [*tiny.FAMILIES, "gemma2"])
def test_next_token_probabilities_are_those_of_one_plain_pass_a_prompt(
    folders: Callable[[str], Path], family: str
) -> None:
    target = HFTarget(folders(family), dtype="float64", batch_tokens=40)
    model = plain_model(folders(family))
    prompts = [[5, 6, 7], list(range(30)), [1], [8, 9, 7]]
    ids, p = target.next_token_probabilities(prompts, top=6)
    among = np.array([[3, 2, 1]] * 4)
    same, named = target.next_token_probabilities(prompts, among=among)
    np.testing.assert_array_equal(same, among)
    for i, prompt in enumerate(prompts):
        with torch.inference_mode():
            right = model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1).numpy()
        np.testing.assert_array_equal(ids[i], np.argsort(-right)[:6])
        np.testing.assert_allclose(p[i], right[ids[i]], atol=1e-6)
        np.testing.assert_allclose(named[i], right[[3, 2, 1]], atol=1e-6)


@pytest.mark.parametrize("kind", ["prompt", "prefix", "lora"])
def test_next_token_probabilities_follow_the_adapter(
    folders: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    adapter = save_adapter(folders("llama"), tmp_path / kind, adapter_of(kind))
    target = HFTarget(adapter, dtype="float64", reference="base")
    prompts = [[5, 6, 7], [9, 9], [1, 2, 3]]
    ids, p = target.next_token_probabilities(prompts, top=3)
    assert ids[:, 0].tolist() == target.top_token(prompts)
    assert (np.diff(p) <= 0).all()
    _, base = target.reference.next_token_probabilities(prompts, among=ids)
    assert not np.allclose(p, base, atol=1e-6)
