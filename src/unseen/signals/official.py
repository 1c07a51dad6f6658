"""Self-perturbed probes just as the authors' code makes and measures them (ICP-MIA-SP).

For whoever wants to repeat their numbers. `unseen.signals.probed` is what to audit with: the model's
own template, and masks in any script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Materials
from unseen.signals.masks import generator
from unseen.signals.probed import ProbedLikelihoods, check_masks, check_probes, joined, sums
from unseen.types import Record, Request, Tokenizer, TokenStats

_END = "<|eot_id|>"
_USER = "<|start_header_id|>user<|end_header_id|>\n\n"
_ASSISTANT = "<|start_header_id|>assistant<|end_header_id|>\n\n"
_MOST = 4096  # tokens of the prompt, in the configurations that they publish
_RESERVED = 300  # of them kept for the answer, however long it is


@dataclass(frozen=True)
class OfficialProbes:
    """Likelihoods with and without masked probes, by the choices of the published code.

    - Whatever the model, prompt and answer stand in the markup of Llama 3, the probe directly in
      front, its parts stripped; the tokenizer's beginning-of-text token comes first.
    - The text is tokenized as a whole, the prompt once more to count its tokens; what follows them
      is scored: the answer, and the literal end-of-turn marker that is appended to it.
    - `int(rate * n)` of the n words (between white space) with a letter from a to z become "word",
      and the words are joined by single spaces.
    - A probe counts where its tokens fit into 4096 (or the model's limit) minus those of the prompt
      minus 300. The fitting one that helps most gives the score: the minimum of the differences.

    Where that code scores 0 (no probe fits) or shows the whole answer (no word can be masked), the
    record has a reason instead; its cutting of long prompts is not repeated either.

    Attributes:
        of: the role of the model asked.
        probes: K, the probes for a record; they may be equal.
        rate: share of the words to mask, in (0, 1).
        seed: another seed, other masks (the published code sets none).
    """

    gives: ClassVar[type] = ProbedLikelihoods
    of: str = TARGET
    probes: int = 5
    rate: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_probes(self.probes)
        check_masks(self.rate)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests at most: without a probe, and after each that fits."""
        prompt, answer = _pair(record)
        tokenizer, limit = materials.encoder.tokenizer, materials.encoder.max_length
        query = f"{_USER}{prompt}{_END}{_ASSISTANT}"
        alone = _request(tokenizer, query, answer, limit)
        room = min(_MOST, limit) - len(_ids(tokenizer, query)) - _RESERVED
        asks: list[Ask] = []
        for masked in self.made_from(record):
            probe = f"{_USER}{prompt.strip()}{_END}{_ASSISTANT}{masked.strip()}{_END}"
            if len(tokenizer.encode(probe)) <= room:
                asks.append(_request(tokenizer, probe + query, answer, limit))
        if not asks:
            reason = "no probe fits into the context with 300 tokens left for the answer"
            raise UnscorableError(reason)
        if any(ask.scored != alone.scored for ask in asks):
            reason = "the tokens of the answer depend on what stands before it"
            raise UnscorableError(reason)
        return joined(alone, asks)

    def observe(self, answers: Sequence[TokenStats]) -> ProbedLikelihoods:
        """Sums of log-probabilities."""
        return sums(answers)

    def made_from(self, record: Record) -> list[str]:
        """The answer, masked K times.

        Raises:
            UnscorableError: where masking changes nothing, so that a probe would be the answer.
        """
        _, answer = _pair(record)
        words = answer.split()
        eligible = [i for i, word in enumerate(words) if any(_is_latin(letter) for letter in word)]
        n_masked = int(len(eligible) * self.rate)
        made: list[str] = []
        for number in range(self.probes):
            rng = generator(self.seed, number, answer)
            chosen = set(rng.choice(len(eligible), size=n_masked, replace=False).tolist())
            gone = {eligible[i] for i in chosen}
            masked = ["word" if i in gone else word for i, word in enumerate(words)]
            if masked != words:
                made.append(" ".join(masked))
        if not made:
            reason = "no word of it can be masked: too few hold a letter from a to z"
            raise UnscorableError(reason)
        return made


def _is_latin(letter: str) -> bool:
    return letter.isascii() and letter.isalpha()


def _pair(record: Record) -> tuple[str, str]:
    """Prompt and answer; the published code knows nothing else."""
    if [turn.role for turn in record.turns] != ["user", "assistant"]:
        reason = "parity=official takes one prompt and one answer, without a system turn"
        raise UnscorableError(reason)
    prompt, answer = (turn.content for turn in record.turns)
    return prompt, answer


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    return begin + tokenizer.encode(text)


def _request(tokenizer: Tokenizer, prompt: str, answer: str, limit: int) -> Ask:
    """The answer and its end, after the prompt."""
    whole = tuple(_ids(tokenizer, f"{prompt}{answer}{_END}"))
    n_prompt = len(_ids(tokenizer, prompt))
    if len(whole) > limit:
        reason = "does not fit into the context"
        raise UnscorableError(reason)
    request = Request(whole[:n_prompt], whole[n_prompt:])
    return Ask((request,), (np.ones(len(request.continuation), dtype=bool),))
