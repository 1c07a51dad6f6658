"""What an endpoint gives, by trying: options are taken at their word by nobody.

Some ten short questions of our own; no record is needed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unseen.errors import TargetError
from unseen.targets.endpoint import NoAnswer
from unseen.targets.openai_compatible import OpenAITarget
from unseen.types import GREEDY, Prompt, Sampling

_QUESTION = "Write a sentence about the sea."
_LONGEST = 24
_WARM = Sampling(temperature=1.0)
_REFUSED = "refused"
_IGNORED = "taken, and ignored without a word"
_TOLD = "told, but not relied on: only text is read"


@dataclass(frozen=True)
class Finding:
    """One thing that was tried.

    Attributes:
        name: what it is.
        ok: whether it is given; None where that is neither good nor bad.
        detail: what was seen.
    """

    name: str
    ok: bool | None
    detail: str


def tried(target: OpenAITarget) -> Iterator[Finding]:
    """What the endpoint gives.

    Raises:
        UnseenError: where it answers no more.
    """
    kind = target.describe()["api"]
    started = time.perf_counter()
    first = _text(target, GREEDY)
    took = time.perf_counter() - started
    about = first if isinstance(first, NoAnswer) else None
    detail = f"answers in {took:.1f} s" if about is None else about.why.reason
    yield Finding("chat completions" if kind == "chat" else kind, about is None, detail)
    same = not isinstance(first, NoAnswer) and first == _text(target, GREEDY)
    yield Finding(
        "twice the same",
        same,
        "at temperature 0" if same else "not at temperature 0: scores are noisier for it",
    )
    yield _seed(target, first, taken="seed" not in target.describe())
    yield _logprobs(target, kind)
    yield _echo(target, kind)
    answer = _ask(target, n=2)
    n = 0 if answer is None else len(answer.choices)
    yield Finding("several answers", None, _REFUSED if not n else "given" if n == 2 else _IGNORED)
    counts = target.counts
    usage = f"{counts.read:,} read and {counts.written:,} written so far"
    told = bool(counts.read or counts.written)
    yield Finding("tokens counted", None, usage if told else "it does not tell")


def _seed(target: OpenAITarget, greedy: str | NoAnswer, *, taken: bool) -> Finding:
    name = "seed honoured"
    if not taken:
        return Finding(name, False, "not taken: what is drawn cannot be drawn again")  # noqa: FBT003
    one, again, other = (_text(target, _WARM, number) for number in (0, 0, 1))
    if any(isinstance(text, NoAnswer) for text in (one, again, other)):
        return Finding(name, None, "not known: it does not answer")
    if one != again:
        return Finding(name, False, "the same seed draws other text")  # noqa: FBT003
    if one == other == greedy:
        return Finding(name, False, "nothing is drawn: it writes the same at temperature 1 and 0")  # noqa: FBT003
    if one == other:
        return Finding(name, None, "not known: another seed draws the same text")
    return Finding(name, True, "the same seed draws the same text, another one another")  # noqa: FBT003


def _logprobs(target: OpenAITarget, kind: str) -> Finding:
    options = {"logprobs": True, "top_logprobs": 1} if kind == "chat" else {"logprobs": 1}
    answer = _ask(target, **options)
    if answer is None:
        return Finding("generated logprobs", None, _REFUSED)
    told = getattr(answer.choices[0], "logprobs", None)
    values = getattr(told, "content" if kind == "chat" else "token_logprobs", None)
    return Finding("generated logprobs", None, _TOLD if values else _IGNORED)


def _echo(target: OpenAITarget, kind: str) -> Finding:
    name = "prompt logprobs"
    if kind == "chat":
        return Finding(name, None, "not offered to chats")
    answer = _ask(target, echo=True, logprobs=1)
    if answer is None:
        return Finding(name, None, _REFUSED)
    choice = answer.choices[0]
    echoed = str(getattr(choice, "text", "")).startswith(_QUESTION)
    values = getattr(getattr(choice, "logprobs", None), "token_logprobs", None)
    return Finding(name, None, _TOLD if echoed and values else _IGNORED)


def _text(target: OpenAITarget, sampling: Sampling, number: int = 0) -> str | NoAnswer:
    try:
        return target.text(target.ask(target.body(_prompt(target, sampling, number))))
    except NoAnswer as error:
        return error


def _ask(target: OpenAITarget, **options: Any) -> Any:
    """The whole answer, or None where it is refused."""
    try:
        return target.ask(target.body(_prompt(target, GREEDY)) | options)
    except (TargetError, NoAnswer):
        return None


def _prompt(target: OpenAITarget, sampling: Sampling, number: int = 0) -> Prompt:
    return Prompt(tuple(target.tokenizer.encode(_QUESTION)), _LONGEST, sampling, number)
