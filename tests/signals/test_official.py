"""The published way, against a statement of it that shares nothing but the drawing of masks."""

import re
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer

from unseen.attacks.icp_sp import IcpSp
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import Materials
from unseen.signals.official import OfficialProbes
from unseen.targets.fake import FakeTokenizer
from unseen.targets.huggingface import HFTarget
from unseen.types import Record, Turn

TOY = (
    ("Who came? ", "Nobody came, and the\n lazy dog slept."),
    ("What is owed?", " Mina Okafor owes 412.70 since 3 March."),
    ("Sleep?", "Patients were asked about headaches, fever, and sleep; ответ пришёл."),
    ("Go on?\nPlease.", "a b c d"),
)


def record(prompt: str, answer: str, id_: str = "r") -> Record:
    return Record(id_, (Turn("user", prompt), Turn("assistant", answer)))


RECORDS = [record(*pair, f"r{i}") for i, pair in enumerate(TOY)]

# --- the statement -------------------------------------------------------------------------------


def written(prompt: str, answer: str | None) -> str:
    text = "<|start_header_id|>user<|end_header_id|>\n\n" + prompt + "<|eot_id|>"
    text += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    return text if answer is None else text + answer + "<|eot_id|>"


class Published:
    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def likelihood(self, prompt: str, answer: str) -> float:
        """Minus the loss on what follows the prompt."""
        ids = torch.tensor([self.tokenizer(prompt + answer + "<|eot_id|>")["input_ids"]])
        labels = ids.clone()
        labels[:, : len(self.tokenizer(prompt)["input_ids"])] = -100
        with torch.inference_mode():
            return -self.model(input_ids=ids, labels=labels).loss.item()

    def score(self, prompt: str, answer: str, masked: list[str], most: int) -> float:
        query = written(prompt, None)
        room = most - len(self.tokenizer(query)["input_ids"]) - 300
        probes = [written(prompt.strip(), text.strip()) for text in masked]
        ranked = sorted(probes, key=lambda probe: -self.likelihood(probe + query, answer))
        for probe in ranked:
            if len(self.tokenizer(probe, add_special_tokens=False)["input_ids"]) <= room:
                return self.likelihood(query, answer) - self.likelihood(probe + query, answer)
        raise AssertionError


def saved(where: Path, *, bos: bool) -> Path:
    folder = tiny.folder(where, "llama", seed=3)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # As in Llama 3, the marks are tokens of their own.
    marks = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    if bos:
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
        )
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.random.manual_seed(1)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("bos", [True, False])
def test_equals_the_published_way(tmp_path: Path, bos: bool) -> None:
    folder = saved(tmp_path / "model", bos=bos)
    target = HFTarget(folder, dtype="float64", device="cpu")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    attack = IcpSp(probes=3, rate=0.7, parity="official")
    with Store() as store:
        seen, _ = collect(
            attack.signals(), RECORDS, {"target": Model(target, encoder)}, store=store
        )
    scores = attack.score(seen)
    assert not scores.unscored
    published = Published(folder)
    for (prompt, answer), one, value in zip(TOY, RECORDS, scores.values, strict=True):
        masked = OfficialProbes(probes=3, rate=0.7).made_from(one)
        expected = published.score(prompt, answer, masked, target.max_length)
        assert value == pytest.approx(expected, abs=1e-4)
    with Store() as store:
        ours, _ = collect(
            IcpSp(probes=3, rate=0.7).signals(),
            RECORDS,
            {"target": Model(target, encoder)},
            store=store,
        )
    assert (IcpSp(probes=3, rate=0.7).score(ours).values != scores.values).all()


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7])
def test_masks_are_the_published_ones(rate: float) -> None:
    for _, answer in TOY:
        words = answer.split()
        eligible = [i for i, word in enumerate(words) if re.search("[A-Za-z]", word)]
        for masked in OfficialProbes(rate=rate).made_from(record("Who?", answer)):
            got = masked.split(" ")
            gone = [i for i, (a, b) in enumerate(zip(words, got, strict=True)) if a != b]
            assert len(gone) == int(rate * len(eligible))
            assert {got[i] for i in gone} == {"word"}
            assert set(gone) <= set(eligible)


def ask(one: Record, limit: int = 4096, **choices: Any) -> Any:
    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=limit)
    return OfficialProbes(**choices).ask(one, Materials(encoder))


@pytest.mark.parametrize(
    ("one", "limit", "reason"),
    [
        (record("Who?", "她每天早上喝咖啡"), 4096, "no word of it can be masked"),
        (record("Who?", "Yes"), 4096, "no word of it can be masked"),
        (record("Who?", "42 17 99"), 4096, "no word of it can be masked"),
        (record("Who?", "word word word"), 4096, "no word of it can be masked"),
        (record("Who?", "Nobody came to us."), 500, "no probe fits"),
        (record("Who?", "Nobody came to us. " * 50), 600, "does not fit into the context"),
        (Record("d", (Turn("text", "One two three."),)), 4096, "one prompt and one answer"),
    ],
)
def test_what_the_published_code_scores_as_zero_has_a_reason(
    one: Record, limit: int, reason: str
) -> None:
    with pytest.raises(UnscorableError, match=reason):
        ask(one, limit)


def test_only_what_fits_is_a_candidate() -> None:
    one = record("Who?", "Nobodynobodynobody a b c d e")
    signal = OfficialProbes(rate=0.34, probes=20)
    masked = signal.made_from(one)
    assert len({len(text) for text in masked}) > 1
    n_query = 1 + len(FakeTokenizer().encode(written("Who?", None)))
    shortest = min(masked, key=len)
    room = len(FakeTokenizer().encode(written("Who?", shortest)))
    asked = ask(one, n_query + 300 + room, rate=0.34, probes=20)
    assert len(asked.requests) == 1 + sum(len(text) == len(shortest) for text in masked) < 21
    with pytest.raises(UnscorableError, match="no probe fits"):
        ask(one, n_query + 299 + room, rate=0.34, probes=20)
