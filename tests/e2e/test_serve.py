"""A real endpoint: what it writes is what the same model writes here, and what it ignores is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import serving
import tiny
import torch

import unseen
from unseen.data.templates import Layout, RecordEncoder
from unseen.targets.huggingface import HFTarget
from unseen.types import Sampling, Turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(serving.why_not() is not None, reason=str(serving.why_not())),
]
TEXTS = [
    "The quick brown",
    "Mina Okafor of Harrow Lane owes",
    "Patients were asked about",
    "Der Hund",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.folder(tmp_path_factory.mktemp("served") / "model", dtype=torch.float32)
    file = folder / "generation_config.json"
    # Ends as here: those of the tokenizer and of the configuration. Without do_sample it draws nothing,
    # whatever temperature it is sent.
    about = json.loads(file.read_text()) | {"eos_token_id": [1, 2], "do_sample": True}
    file.write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with serving.serving(model) as found:
        if found is None:
            pytest.skip(f"transformers serve does not come up in {serving.LONGEST} s")
        yield found


def endpoint(model: Path, url: str, **how: Any) -> unseen.OpenAITarget:
    return unseen.OpenAITarget(str(model), base_url=url, **how)


def written(target: Any, prompts: list[tuple[int, ...]], **how: Any) -> list[str]:
    made = target.generate(prompts, max_new_tokens=12, **how)
    return [target.tokenizer.decode(ids) for ids in made]


def test_completions_are_what_the_model_writes_here(model: Path, url: str) -> None:
    target, here = endpoint(model, url, api="completions", concurrency=4), HFTarget(model)
    there = written(target, [tuple(target.tokenizer.encode(text)) for text in TEXTS])
    assert there == written(here, [tuple(here.tokenizer.encode(text)) for text in TEXTS])
    assert any(there)


def test_a_chat_is_what_the_model_writes_here(model: Path, url: str) -> None:
    target, here = endpoint(model, url, concurrency=4), HFTarget(model)
    chats = [(Turn("system", "Be brief."), Turn("user", text)) for text in TEXTS]
    both = []
    for one in (target, here):
        encoder = RecordEncoder(one.tokenizer, Layout(), limit=one.max_length)
        both.append(written(one, [encoder.prompt(turns) for turns in chats]))
    assert both[0] == both[1]
    assert any(both[0])


def test_many_at_once_are_each_alone(model: Path, url: str) -> None:
    target = endpoint(model, url, api="completions", concurrency=8)
    prompts = [tuple(target.tokenizer.encode(f"{text} {i}")) for text in TEXTS for i in range(4)]
    together = written(target, prompts)
    assert together == [written(target, [prompt])[0] for prompt in prompts]


def test_a_seed_is_honoured_where_one_is_asked_at_a_time(model: Path, url: str) -> None:
    target = endpoint(model, url, api="completions", concurrency=1)
    prompt, warm = tuple(target.tokenizer.encode(TEXTS[0])), Sampling(1.0, seed=3)
    draws = [written(target, [prompt], sampling=warm, numbers=[n])[0] for n in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_what_it_ignores_is_noticed(model: Path, url: str) -> None:
    found = unseen.doctor(f"openai/{model}", base_url=url, api="completions")
    rows = {row.name: row for row in found.model}
    assert rows["twice the same"].ok is True
    assert rows["seed honoured"].ok is True
    for name in ("generated logprobs", "prompt logprobs", "several answers"):
        assert rows[name].detail == "taken, and ignored without a word"
    assert rows["access"].detail == "text"
    with pytest.raises(unseen.UnseenError, match="is pinned to"):
        endpoint(model.parent / "other", url)


def test_an_audit_over_http(model: Path, url: str, tmp_path: Path) -> None:
    for side in ("in", "out"):
        rows = [{"text": f"{TEXTS[i % 4]} {side} number {i} of the {side}side."} for i in range(12)]
        (tmp_path / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = unseen.audit_finetune(
        f"openai/{model}",
        base_url=url,
        api="completions",
        members=str(tmp_path / "in.jsonl"),
        nonmembers=str(tmp_path / "out.jsonl"),
        attacks=["samia[samples=1,temperature=0,top_k=0]"],
        near_duplicates=1.0,
        runs=tmp_path / "runs",
        cache_dir=tmp_path / "cache",
        bootstrap=200,
    )
    (attack,) = (one for one in result.results.attacks if one.kind == "attack")
    assert attack.n == (12, 12)
    assert result.results.target["url"] == url
