"""What one real optimizer step would still do for a record: its optimization gap (ICP-MIA, section IV)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.signals.base import TARGET, Ask, Materials, one_request
from unseen.signals.checks import check_count
from unseen.targets.access import Access, WhiteBoxTarget
from unseen.types import Batch, Encoded, Record, TokenStats


@dataclass(frozen=True)
class StepGain:
    """Log-likelihood of a record's scored tokens before and after one step, in nats.

    Attributes:
        n_tokens: how many are scored.
        before: sum of their log-probabilities under the model.
        after: the same after a step on a batch that holds the record.
    """

    n_tokens: int
    before: float
    after: float


@dataclass(frozen=True)
class OneStep:
    """Likelihood before and after a real step of AdamW on a batch of records (section IV-A).

    The measured records are cut into batches of about equal size, mixed by a hash of their text, so
    that membership has no say in who is together. For each batch the model takes one step on its
    scored tokens, from its own weights and with a fresh optimizer, is asked again, and gets its
    weights back, bit for bit. Where it has an adapter, that alone is changed.

    Attributes:
        of: the role of the model asked.
        batch: the most records in a step.
        learning_rate: of the step.
        seed: another seed, other batches.
    """

    gives: ClassVar[type] = StepGain
    access: ClassVar[Access] = Access.WHITE_BOX
    of: str = TARGET
    batch: int = 16
    learning_rate: float = 2e-4
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("batch", self.batch)
        if not (self.learning_rate > 0 and np.isfinite(self.learning_rate)):
            msg = f"got learning_rate={self.learning_rate}, expected a number above 0"
            raise ValueError(msg)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request: the scored tokens after their context; it is asked before and after."""
        return one_request(materials.encoder.encode(record))

    def observe(self, answers: Sequence[TokenStats]) -> StepGain:
        """From the answers before and after the step."""
        before, after = (float(answer.logprob.sum(dtype=np.float64)) for answer in answers)
        return StepGain(len(answers[0].logprob), before, after)

    def batches(self, records: Sequence[Record]) -> list[list[Record]]:
        """The records that take a step together; their order has no say."""
        mixed = sorted(records, key=self._place)
        n = -(-len(mixed) // self.batch)
        parts = np.array_split(np.arange(len(mixed)), n) if n else []
        return [[mixed[i] for i in part] for part in parts]

    def _place(self, record: Record) -> tuple[bytes, str]:
        text = f"{self.seed}|{record.text}".encode()
        return hashlib.blake2b(text, digest_size=16).digest(), record.id


class AfterStep:
    """A target after one step, taken when the first question comes; for use as a context manager.

    Args:
        target: whose weights are changed, and put back at the end.
        examples: what the step is taken on.
        learning_rate: of the step.
    """

    def __init__(
        self, target: WhiteBoxTarget, examples: Sequence[Encoded], learning_rate: float
    ) -> None:
        self._target, self._examples, self._learning_rate = target, examples, learning_rate
        self._stack = ExitStack()
        self._stepped = False
        self.batch_tokens = target.batch_tokens
        digest = hashlib.blake2b(repr(learning_rate).encode(), digest_size=16)
        for example in examples:
            digest.update(np.array(example.ids, dtype="<i8").tobytes())
            digest.update(np.asarray(example.scored, dtype=bool).tobytes())
        self.fingerprint = f"{target.fingerprint}|a step of AdamW on {digest.hexdigest()}"

    def __enter__(self) -> AfterStep:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def execute(self, batch: Batch) -> list[TokenStats]:
        """What the model says after the step."""
        if not self._stepped:
            self._stack.enter_context(
                self._target.after_step(self._examples, learning_rate=self._learning_rate)
            )
            self._stepped = True
        return self._target.execute(batch)
