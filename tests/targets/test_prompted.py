import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from scripted import TREC, Scripted, copying, pool

from unseen.errors import ConfigError
from unseen.runs.prompt.audit import audit_prompt
from unseen.runs.prompt.config import PromptAudit
from unseen.targets.access import LogprobTarget, stats_of_one
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.targets.huggingface import HFTarget
from unseen.targets.prompted import PromptedTarget
from unseen.types import Batch, Request

PROMPT = "Sort each note.\n\nNote: mina\nKind: Birch\n\n"


@pytest.mark.parametrize("bos", [True, False])
def test_it_answers_as_the_model_does_after_the_whole_text(bos: bool) -> None:
    tokenizer = FakeTokenizer(bos=bos)
    inner = FakeTarget(tokenizer=tokenizer)
    target = PromptedTarget(inner, PROMPT)
    assert isinstance(target, LogprobTarget)
    begin = [256] if bos else []
    sent = [*begin, *tokenizer.encode("Note: mi")]
    whole = [*begin, *tokenizer.encode(PROMPT + "Note: mi")]
    assert target.generate([sent], max_new_tokens=9) == inner.generate([whole], max_new_tokens=9)
    assert target.top_token([sent]) == inner.top_token([whole])
    for one, other in zip(
        target.next_token_probabilities([sent], top=3),
        inner.next_token_probabilities([whole], top=3),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    found = stats_of_one(target, Request(tuple(sent), (110, 97)))
    right = stats_of_one(inner, Request(tuple(whole), (110, 97)))
    np.testing.assert_array_equal(found.logprob, right.logprob)


def test_its_context_is_what_the_prompt_leaves() -> None:
    inner = FakeTarget(max_length=200)
    assert PromptedTarget(inner, PROMPT).max_length == 200 - 1 - len(PROMPT)
    with pytest.raises(ConfigError, match="the prompt has 42 tokens, and fake reads 30"):
        PromptedTarget(FakeTarget(max_length=30), PROMPT[:41])
    with pytest.raises(ConfigError, match="the prompt is empty"):
        PromptedTarget(inner, "")


def test_another_prompt_has_another_fingerprint() -> None:
    inner = FakeTarget()
    prints = {PromptedTarget(inner, text).fingerprint for text in ("a", "b")}
    assert len(prints | {inner.fingerprint}) == 3


def test_on_a_real_model_a_shared_prompt_is_read_once(tmp_path) -> None:
    inner = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float64")
    target = PromptedTarget(inner, "The quick brown fox.")
    rows = (Request((5, 6), (7, 8)), Request((9,), (10,)))
    before = tuple(inner.tokenizer.encode("The quick brown fox."))
    for answer, row in zip(target.execute(Batch((), rows)), rows, strict=True):
        right = stats_of_one(inner, Request(before + row.context, row.continuation))
        np.testing.assert_allclose(answer.logprob, right.logprob, atol=1e-9)


def test_where_prompt_and_question_meet_they_are_one_text(tmp_path: Path) -> None:
    made = tiny.tokenizer(corpus=["Note: mina\n\n", "Kind: Birch"])
    made.save_pretrained(tmp_path)
    tiny.model("llama", len(made)).save_pretrained(tmp_path)
    inner = HFTarget(tmp_path, dtype="float64")
    encode, target = inner.tokenizer.encode, PromptedTarget(inner, PROMPT)
    texts = ["Note: mi", "Note: mina\n\nNote: mi", "\nmina"]
    whole = [encode(PROMPT + text) for text in texts]
    assert whole[0] != encode(PROMPT) + encode(texts[0]), "a blank line is one token at an end"
    sent = [encode(text) for text in texts]
    assert target.generate(sent, max_new_tokens=6) == inner.generate(whole, max_new_tokens=6)
    assert target.max_length + max(map(len, whole)) - max(map(len, sent)) <= inner.max_length
    rows = [Request(tuple(ids), (7, 8)) for ids in sent]
    right = [stats_of_one(inner, Request(tuple(ids), (7, 8))) for ids in whole]
    for prefix in ((), rows[0].context):
        some = [row for row in rows if row.context[: len(prefix)] == prefix]
        answers = target.execute(Batch(prefix, tuple(some)))
        for answer, row in zip(answers, some, strict=True):
            expected = right[rows.index(row)]
            np.testing.assert_allclose(answer.logprob, expected.logprob, atol=1e-9)


def test_an_observed_prompt_is_audited_as_if_it_were_deployed(tmp_path: Path) -> None:
    examples = pool(24)
    shown = TREC.hidden(examples[:12])
    for name, some in (("in", examples[:12]), ("out", examples[12:])):
        rows = [json.dumps({"id": one.id, "text": one.text, "label": one.label}) for one in some]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    _, results = audit_prompt(
        PromptAudit(
            template="trec", observed_prompt=True, attacks=("repeat[encoder=letters]",), fpr=(0.1,),
            members=str(tmp_path / "in.jsonl"), nonmembers=str(tmp_path / "out.jsonl"),
            bootstrap=200, run_dir=tmp_path / "run", cache=False,
        ),
        target=PromptedTarget(Scripted(copying), shown),
    )  # fmt: skip
    (row,) = [row for row in results.attacks if row.kind == "attack"]
    assert row.auc.value == 1
