"""Before an audit: proof, on a handful of records, that the model's numbers are what they should be.

Each of these faults has gone unnoticed in practice and turned a whole audit into noise: a server
that answers 0 for every token, log-probabilities shifted by one token, an adapter that is left out
of scoring, answers that depend on what else is in the batch, a beginning-of-text token too many.
The model itself is asked, never the store: some twenty questions of at most 40 tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from unseen.data.templates import RecordEncoder
from unseen.errors import OutOfMemoryError, PreflightError, TargetError, UnscorableError
from unseen.runs.collect import Model, Shadow
from unseen.runs.inside.step_check import ID as STEPS
from unseen.runs.inside.step_check import step_check
from unseen.runs.rendered import beginning_id, rendered
from unseen.runs.rendered import in_a_line as shown
from unseen.runs.results import IN_A_LINE, Check, Status
from unseen.scoring.generation import EachAlone
from unseen.signals.base import CONTROL, REFERENCE, TARGET, Encoder, Signal
from unseen.targets.access import Access, LogprobTarget, Withheld, is_withheld, stats_of_one
from unseen.types import Batch, Encoded, FloatArray, Record, Request, TokenStats

if TYPE_CHECKING:
    from unseen.data.records import Records
    from unseen.runs.config import FinetuneAudit
    from unseen.runs.folder import RunFolder

TITLES = {
    "template": "template, beginning of text, loss mask",
    "logprobs_real": "log-probabilities are real",
    "teacher_forced": "scored = generated",
    "batch_invariance": "alone = in a batch",
    "adapter_effect": "fine-tuning changes the model",
}

N_MEMBERS, N_NONMEMBERS = 3, 2
_LONGEST = 40
"""Tokens of a record that are read here, its context included."""
_CONTEXT = 16
_GENERATED = 4
_ANSWERED = 16
_N_PROMPTS = 2
_N_OTHERS = 2
_SOME = 8

_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "float16": 0.1}
_LOOSEST = 0.5
"""Nats between two computations of one log-probability: of bfloat16, and where nothing is known."""
_FLOOR = {"float64": 1e-7, "float32": 1e-5}
_HIGHEST_FLOOR = 1e-4
"""Nats a token by which two models differ at least, on average, if one was trained further."""
_OTHER = 0.25
"""Share of first choices that may differ between two computations in low precision."""
_IN_ITS_ORDER = "the target must answer each request of a batch, in its order, without sampling"
_ROUNDING = 1e-3
"""Nats by which a log-probability may miss a bound that holds exactly in exact arithmetic."""


class _Fault(Exception):  # noqa: N818 (it never leaves this file)
    """What a check found, and what to do about it."""

    def __init__(self, detail: str, fix: str, value: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fix = fix
        self.value = value


class _Unanswered(Exception):  # noqa: N818 (it never leaves this file)
    """Why a check cannot be made."""


@dataclass(frozen=True)
class _Found:
    """What a check measured, where nothing is wrong."""

    detail: str
    value: float | None = None
    status: Status = "pass"
    fix: str | None = None


@dataclass(frozen=True)
class _Piece:
    """Part of a record: a request, whole record's ids for comparison, and its side."""

    record: Record
    encoded: Encoded
    request: Request
    member: bool


def preflight(
    models: dict[str, Model],
    members: Sequence[Record],
    nonmembers: Sequence[Record],
    *,
    seed: int,
    shadows: Sequence[Shadow] = (),
) -> tuple[Check, ...]:
    """Checks what an audit relies on.

    Args:
        models: role -> model: the target, and reference and control model where there is one.
        members: judged members; a few are drawn.
        nonmembers: judged non-members; a few are drawn.
        seed: of the draw.
        shadows: shadow models; each is loaded and freed again.

    Returns:
        A check each for `TITLES`, in that order; equal for equal arguments, as far as the model
        answers alike.

    Raises:
        OutOfMemoryError: where not even a short text fits.
    """
    pieces, reasons = _draw(models[TARGET], members, nonmembers, seed)
    trial = _Trial(models, pieces, reasons, (*members[:1], *nonmembers[:1]), shadows)
    return trial.checks()


def checked_first(
    config: FinetuneAudit,
    models: dict[str, Model],
    judged: Records,
    folder: RunFolder,
    about: dict[str, Any],
    say: Callable[[str], None],
    *,
    shadows: Sequence[Shadow] = (),
    signals: Sequence[Signal] = (),
) -> tuple[Check, ...]:
    """The checks of a run, made once for its folder, or read where they were made before.

    Args:
        config: whether there are any, and the seed.
        models: role -> model.
        judged: the records of both sides.
        folder: the run folder.
        about: its header, run.json, which keeps the checks.
        say: told what the first record looks like to the model, and a line for each check.
        shadows: shadow models.
        signals: that will be measured.

    Raises:
        PreflightError: where a check fails; the header then says which.
    """
    say(f"example    {_example(judged, models[TARGET].encoder)}")
    if not config.preflight:
        return _switched_off()
    checks = kept(about)
    if checks is None or [check.id for check in checks if check.id != STEPS] != list(TITLES):
        checks = preflight(
            models, judged.members, judged.nonmembers, seed=config.seed, shadows=shadows
        )
        steps = step_check(signals, models, judged.records)
        checks += () if steps is None else (steps,)
    conclude(checks, folder, about, say)
    return checks


def conclude(
    checks: tuple[Check, ...],
    folder: RunFolder,
    about: dict[str, Any],
    say: Callable[[str], None],
) -> None:
    """Keeps checks in the header of a run, says them, and stops the run where one failed.

    Raises:
        PreflightError: where a check fails; the header then says which.
    """
    about["preflight"] = [check.model_dump(mode="json") for check in checks]
    folder.write_json("run.json", about)
    for check in checks:
        say(in_a_line(check))
    if any(check.status == "fail" for check in checks):
        about["attempts"][-1] |= {"status": "refused"}
        folder.write_json("run.json", about | {"status": "refused"})
        refuse(checks)


def kept(about: dict[str, Any]) -> tuple[Check, ...] | None:
    """Checks that an earlier attempt of the same plan has made, unless one of them failed."""
    try:
        checks = tuple(Check.model_validate(one) for one in about.get("preflight") or ())
    except ValidationError:
        return None
    return checks if checks and all(check.status != "fail" for check in checks) else None


def _example(judged: Records, encoder: Encoder) -> str:
    """One line: the first record that can be scored, as the model reads it."""
    parts = rendered(judged.records, encoder)
    if not parts:
        return "no record can be scored"
    n_scored = sum(part.n_tokens for part in parts if part.scored)
    n_tokens = sum(part.n_tokens for part in parts)
    bos = beginning_id(encoder.tokenizer)
    n_bos = sum((part.ids or ()).count(bos) for part in parts) if bos is not None else 0
    return f"{shown(parts)}  scored: {n_scored} of {n_tokens} tokens, {n_bos} BOS"


def _switched_off() -> tuple[Check, ...]:
    """The checks of a run that was told to leave them out."""
    return tuple(
        Check(id=id_, title=title, status="skip", detail="switched off: --no-preflight")
        for id_, title in TITLES.items()
    )


def refuse(checks: Sequence[Check]) -> None:
    """Stops where a check failed.

    Raises:
        PreflightError: with every failed check, its likely cause and what to do.
    """
    failed = [check for check in checks if check.status == "fail"]
    if not failed:
        return
    listed = "; ".join(f"{check.id}: {check.detail}" for check in failed)
    fixes = list(dict.fromkeys(check.fix for check in failed if check.fix))
    raise PreflightError(
        f"the model's numbers cannot be trusted, and nothing was measured: {listed}",
        fix="\n  ".join([*fixes, "to measure nevertheless: --no-preflight"]),
    )


def in_a_line(check: Check) -> str:
    """A check as one line for a terminal."""
    return f"preflight  {check.title:<40} {IN_A_LINE[check.status]:<5} {check.detail}"


# --- which records, and how much of them ------------------------------------------------------


def _draw(
    model: Model, members: Sequence[Record], nonmembers: Sequence[Record], seed: int
) -> tuple[list[_Piece], list[str]]:
    """Pieces of a few records of each side, and why others cannot be scored."""
    rng = np.random.default_rng([seed, 2])
    pieces: list[_Piece] = []
    reasons: list[str] = []
    for side, wanted in ((members, N_MEMBERS), (nonmembers, N_NONMEMBERS)):
        n_found = 0
        for place in rng.permutation(len(side)).tolist():
            if n_found == wanted:
                break
            try:
                encoded = model.encoder.encode(side[place])
            except UnscorableError as error:
                reasons.append(error.problem)
                continue
            # Each piece shorter than the one before, so that a batch of them has to be filled up.
            share = 1 - len(pieces) / (2 * (N_MEMBERS + N_NONMEMBERS))
            request = _cut(encoded, share, model.target.max_length)
            pieces.append(_Piece(side[place], encoded, request, side is members))
            n_found += 1
    return pieces, reasons


def _cut(encoded: Encoded, share: float, max_length: int) -> Request:
    """The first scored tokens of a record after the nearest part of their context."""
    ids = encoded.ids
    first = int(np.flatnonzero(encoded.scored)[0])
    longest = max(2, int(share * min(_LONGEST, max_length - _GENERATED)))
    n_context = max(1, min(first, int(share * _CONTEXT), longest - 1))
    context = ids[first - n_context : first]
    if n_context > 1:
        context = ids[:1] + context[1:]  # models are not at home without their first token
    return Request(context, ids[first : first + longest - n_context])


def _shortened(request: Request, n: int) -> Request:
    """The same question about the first n tokens only."""
    return Request(request.context, request.continuation[:n])


def _moved(request: Request, n: int) -> Request:
    """The same text, its first n tokens counted as context."""
    return Request(request.context + request.continuation[:n], request.continuation[n:])


# --- the checks -------------------------------------------------------------------------------


class _Trial:
    """All checks on the same few pieces, so that each answer is asked for once.

    Args:
        models: role -> model.
        pieces: of drawn records.
        reasons: why other records cannot be scored.
        first: the first records of each side.
        shadows: shadow models.
    """

    def __init__(
        self,
        models: dict[str, Model],
        pieces: list[_Piece],
        reasons: list[str],
        first: Sequence[Record],
        shadows: Sequence[Shadow] = (),
    ) -> None:
        self._models = models
        self._target = models[TARGET].target
        self._pieces = pieces
        self._reasons = reasons
        self._first = first
        self._shadows = shadows
        self._alone: list[TokenStats] = []
        self._of_reference: list[tuple[_Piece, TokenStats]] = []
        self._scatter = 0.0
        self._limit = _tolerance(self._target)

    def checks(self) -> tuple[Check, ...]:
        steps: dict[str, tuple[Callable[[], _Found], str]] = {
            "template": (self._template, "no doubled beginning of text, tokens to score"),
            "logprobs_real": (
                self._logprobs_real,
                "finite, at most 0, not all alike, as many as tokens",
            ),
            "teacher_forced": (self._teacher_forced, f"at most {self._limit:g} nats"),
            "batch_invariance": (self._batch_invariance, f"at most {self._limit:g} nats"),
            "adapter_effect": (self._adapter_effect, f"above {self._floor():g} nats a token"),
        }
        made: list[Check] = []
        if self._target.access < Access.LOGPROB:
            steps |= self._of_lower_rungs()
        for id_, (step, limit) in steps.items():
            if any(check.id == "logprobs_real" and check.status == "fail" for check in made):
                made.append(_skipped(id_, limit, "the log-probabilities themselves are not usable"))
            else:
                made.append(_check(id_, limit, step))
        return tuple(made)

    # -- below LOGPROB

    def _of_lower_rungs(self) -> dict[str, tuple[Callable[[], _Found], str]]:
        """Checks of a target that tells no log-probabilities."""

        def untold() -> _Found:
            raise _Unanswered("the target tells no log-probabilities")

        most = f"at most {100 * self._most_other():g} % others"
        told = self._target.access >= Access.LABEL
        if isinstance(self._target, EachAlone):
            return {
                "template": (self._can_be_asked, "messages, or one text"),
                "logprobs_real": (untold, ""),
                "teacher_forced": (untold, ""),
                "batch_invariance": (self._answers_alike, "the same text each time"),
                "adapter_effect": (untold, ""),
            }
        return {
            "logprobs_real": (untold, ""),
            "teacher_forced": (self._first_is_written if told else untold, most),
            "batch_invariance": (self._same_choices if told else self._same_text, most),
            "adapter_effect": (untold, ""),
        }

    def _most_other(self) -> float:
        """The share of first choices that rounding may change."""
        return 0.0 if _dtype(self._target) in _FLOOR else _OTHER

    def _prompts(self) -> list[list[int]]:
        """Contexts with the first half of what follows: into the record."""
        rows = (piece.request for piece in self._pieces)
        return [[*row.context, *row.continuation[: len(row.continuation) // 2]] for row in rows]

    def _first_is_written(self) -> _Found:
        self._need_pieces()
        prompts = self._prompts()[:_N_PROMPTS]
        made = self._target.generate(prompts, max_new_tokens=_GENERATED)
        pairs: list[tuple[int, int]] = []
        for prompt, tokens in zip(prompts, made, strict=True):
            if tokens:
                (answer,) = _asked(self._target, [Request(tuple(prompt), tuple(tokens))])
                pairs += zip(tokens, _choices(answer), strict=True)
        n_other = sum(token != choice for token, choice in pairs)
        found = f"{n_other} of {len(pairs)} generated tokens are not the first choice"
        if n_other > self._most_other() * len(pairs):
            raise _Fault(
                found,
                "likely causes: first choices that are shifted by one token, sampling that is "
                "switched on, or an adapter that generates but does not score",
                n_other / len(pairs),
            )
        return _Found(found, value=_rounded(n_other / max(1, len(pairs))))

    def _same_choices(self) -> _Found:
        self._need_pieces()
        requests = tuple(piece.request for piece in self._pieces)
        alone = [_choices(answer) for answer in _asked(self._target, requests)]
        together = [_choices(one) for one in self._target.execute(Batch((), requests))]
        again = [_choices(one) for one in _asked(self._target, requests[:1])]
        return self._unless_other([*alone, *alone[:1]], [*together, *again], "first choices")

    def _same_text(self) -> _Found:
        self._need_pieces()
        prompts = self._prompts()
        alone = [self._target.generate([p], max_new_tokens=_GENERATED)[0] for p in prompts]
        if not any(alone):
            raise _Fault(
                f"nothing comes after {len(prompts)} prompts",
                "the target ends every text at once: does --template fit the model?",
            )
        together = self._target.generate(prompts, max_new_tokens=_GENERATED)
        again = self._target.generate(prompts[:1], max_new_tokens=_GENERATED)
        return self._unless_other([*alone, *alone[:1]], [*together, *again], "generated tokens")

    # -- endpoints, which are sent messages or one text

    def _questions(self) -> list[tuple[int, ...]]:
        """What a few records are asked about with: the turns before the last, or half of a document."""
        encoder = self._models[TARGET].encoder
        asked: list[tuple[int, ...]] = []
        for piece in self._pieces[:_N_PROMPTS]:
            *before, last = piece.record.turns
            begun = "" if before else last.content[: len(last.content) // 2 + 1]
            with contextlib.suppress(UnscorableError):
                asked.append(encoder.prompt(before, begun))
        return asked

    def _can_be_asked(self) -> _Found:
        n = len(self._questions())
        if not n:
            return _Found(
                f"no record can be asked about: {self._why_none()}",
                status="warn",
                fix="see the reason; --format and --column say what a record is",
            )
        chat = self._models[TARGET].encoder.tokenizer.chat_template is not None
        return _Found(f"sent as {'messages' if chat else 'one text'}, to be continued")

    def _answers_alike(self) -> _Found:
        prompts = self._questions()
        if not prompts:
            raise _Unanswered(f"no record can be asked about: {self._why_none()}")
        alone = [self._target.generate([p], max_new_tokens=_ANSWERED)[0] for p in prompts]
        together = self._target.generate(prompts, max_new_tokens=_ANSWERED)
        reasons = {Withheld(ids[0]).reason for ids in alone if is_withheld(ids)}
        if all(map(is_withheld, alone)):
            raise _Fault(
                f"none of {len(prompts)} questions is answered: {'; '.join(sorted(reasons))}",
                "a model that thinks first uses the tokens of its answer up: name one that does not; "
                "a chat does not go on with what is begun: --api completions",
            )
        if not any(alone) and not any(together):
            raise _Fault(
                f"nothing comes after {len(prompts)} questions",
                "does --api fit the model? A model that is talked to is asked by --api chat",
            )
        n_other = sum(one != other for one, other in zip(alone, together, strict=True))
        found = f"{n_other} of {len(prompts)} answers differ, asked alone and then together"
        if not n_other:
            return _Found(found, value=0.0)
        return _Found(
            f"{found}: the endpoint does not give its likeliest answer, or not always the same",
            value=_rounded(n_other / len(prompts)),
            status="warn",
            fix="scores are noisier for it, and a second run gives other ones",
        )

    def _unless_other(
        self, one: Sequence[Sequence[int]], other: Sequence[Sequence[int]], what: str
    ) -> _Found:
        if list(map(len, one)) != list(map(len, other)) and not self._most_other():
            raise _Fault(f"alone and in a batch there are not as many {what}", _IN_ITS_ORDER)
        pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=False)]
        n_other = sum(a != b for a, b in pairs)
        found = f"{n_other} of {len(pairs)} {what} differ alone, in a batch, and asked twice"
        if n_other > self._most_other() * len(pairs):
            # A token that differs once lets all after it differ: no proof in low precision.
            low = what == "generated tokens" and bool(self._most_other())
            fix = "measure in higher precision: --dtype float32"
            if not low:
                raise _Fault(found, f"{_IN_ITS_ORDER}; {fix}", n_other / len(pairs))
            return _Found(found, value=_rounded(n_other / len(pairs)), status="warn", fix=fix)
        return _Found(found, value=_rounded(n_other / max(1, len(pairs))))

    # -- template

    def _template(self) -> _Found:
        encoder = self._models[TARGET].encoder
        tokenizer = encoder.tokenizer
        if not self._pieces:
            return _Found(
                f"no record has a token to score: {self._why_none()}",
                status="warn",
                fix="see the reason; --loss-on, --template and --max-length decide what is scored",
            )
        bos = beginning_id(tokenizer)
        template = encoder.template if isinstance(encoder, RecordEncoder) else None
        texts = [*self._first_encoded(), *(piece.encoded for piece in self._pieces)]
        counts = [encoded.ids.count(bos) if bos is not None else 0 for encoded in texts]
        n_doubled = sum(encoded.ids[:2] == (bos, bos) for encoded in texts)
        if bos is not None and bos in tokenizer.encode("."):
            raise _Fault(
                f"the tokenizer puts its beginning-of-text token (id {bos}) before every piece of "
                f"a text: {_span(counts)} in a record",
                "set add_bos_token to false in tokenizer_config.json, or name another --tokenizer",
            )
        if n_doubled == len(texts):
            raise _Fault(
                f"records begin with two beginning-of-text tokens (id {bos}), which the model never "
                "saw in training: its log-probabilities are off",
                "let only one of them write it: take bos_token out of the template (--template "
                "FILE.jinja), out of the records' text, or set add_bos_token to false in "
                "tokenizer_config.json",
            )
        n_tokens = sum(len(piece.encoded.ids) for piece in self._pieces)
        n_scored = sum(int(piece.encoded.scored.sum()) for piece in self._pieces)
        conversations = any(piece.record.turns[0].role != "text" for piece in self._pieces)
        form = (
            "chat template"
            if conversations and template is not None
            else "conversations joined as plain text"
            if conversations
            else "plain text"
        )
        found = (
            f"{form}; {_span(counts)} beginning-of-text tokens; {n_scored} of {n_tokens} tokens of "
            f"{len(self._pieces)} records are scored"
        )
        if n_doubled:
            return _Found(
                f"{found}; {n_doubled} of {len(texts)} texts begin with two of them",
                value=_rounded(n_scored / n_tokens),
                status="warn",
                fix="take the token out of the text of these records",
            )
        return _Found(found, value=_rounded(n_scored / n_tokens))

    def _first_encoded(self) -> Iterator[Encoded]:
        for record in self._first:
            try:
                yield self._models[TARGET].encoder.encode(record)
            except UnscorableError:
                continue

    # -- log-probabilities

    def _logprobs_real(self) -> _Found:
        self._need_pieces()
        requests = [piece.request for piece in self._pieces]
        self._alone = _asked(self._target, requests)
        n = _real(self._alone, requests, "the target")
        for piece in self._comparable():
            (answer,) = _asked(self._models[REFERENCE].target, [piece.request])
            self._of_reference.append((piece, answer))
        if self._of_reference:
            _real(
                [answer for _, answer in self._of_reference],
                [piece.request for piece, _ in self._of_reference],
                "the reference",
            )
        if CONTROL in self._models:
            fix = "--control-model names a model that was trained on other records"
            self._real_beside(self._models[CONTROL], "the control model", fix)
        for shadow in self._shadows:
            fix = "--shadow names a model that was trained as the target was, on other records"
            with shadow.opened() as model:
                self._real_beside(model, f"the shadow {shadow.name}", fix)
                del model
        mean = float(np.concatenate([answer.logprob for answer in self._alone]).mean())
        return _Found(
            f"{n} tokens of {len(requests)} records, {mean:.3g} nats on average",
            value=_rounded(mean),
        )

    def _real_beside(self, model: Model, name: str, fix: str) -> None:
        """Asks a shadow, or the control model, about what it reads as the target does.

        Raises:
            _Fault: where its numbers are not real, or just those of the target.
        """
        pairs = [
            (piece, answer)
            for piece, answer in zip(self._pieces, self._alone, strict=True)
            if _same_ids(model.encoder, piece)
        ]
        requests = [piece.request for piece, _ in pairs]
        answers = _asked(model.target, requests)
        if not answers:
            return
        _real(answers, requests, name)
        gaps = [
            _gap(own.logprob, answer.logprob)
            for own, (_, answer) in zip(answers, pairs, strict=True)
        ]
        if max(gaps) == 0:
            raise _Fault(f"{name} says exactly what the target says", fix, 0.0)

    def _comparable(self) -> list[_Piece]:
        """Members that the reference reads as the same token ids."""
        if REFERENCE not in self._models:
            return []
        encoder = self._models[REFERENCE].encoder
        return [piece for piece in self._pieces if piece.member and _same_ids(encoder, piece)]

    # -- scored = generated

    def _teacher_forced(self) -> _Found:
        self._need_pieces()
        moved = self._cut_elsewhere()
        # Into the record, where fine-tuning has changed most.
        prompts = [
            piece.request.context
            + piece.request.continuation[: len(piece.request.continuation) // 2]
            for piece in self._pieces[:_N_PROMPTS]
        ]
        try:
            made = self._target.generate([list(p) for p in prompts], max_new_tokens=_GENERATED)
        except NotImplementedError:  # a target of somebody else's that does no more than score
            made = [[] for _ in prompts]
        gaps, n_greedy, n_prompts = [moved], 0, 0
        for prompt, tokens in zip(prompts, made, strict=True):
            if not tokens:
                continue
            n_prompts += 1
            n_greedy += len(tokens)
            gaps.append(self._greedy_gap(Request(prompt, tuple(tokens))))
        worst = max(gaps)
        found = (
            f"largest gap {worst:.2g} nats, on {n_greedy} generated tokens of {n_prompts} prompts "
            "and a text that was cut elsewhere"
        )
        if worst > self._limit:
            which = "generated tokens are not the likeliest ones" if gaps.index(worst) else (
                "the same token has another log-probability where the text is cut elsewhere"
            )  # fmt: skip
            raise _Fault(
                f"{found}: {which}",
                "likely causes: log-probabilities that are shifted by one token, an adapter that "
                "generates but does not score, a cache that keeps earlier text; try "
                "--attn-implementation eager or another version of the server",
                worst,
            )
        return _Found(found, value=_rounded(worst))

    def _cut_elsewhere(self) -> float:
        """Largest gap between a text asked as a whole and in two halves, in nats."""
        request, whole = self._pieces[0].request, self._alone[0]
        half = len(request.continuation) // 2
        if not half:
            return 0.0
        halves = _asked(self._target, [_shortened(request, half), _moved(request, half)])
        return _gap(np.concatenate([answer.logprob for answer in halves]), whole.logprob)

    def _greedy_gap(self, request: Request) -> float:
        """By how much a generated token is worse than another, or differs from being asked alone.

        Args:
            request: a prompt and its greedy continuation, of k tokens.

        Returns:
            The largest, in nats, of: log p of another token - log p of the generated one (at most
            0 but for rounding), and |log p asked in a row - log p asked alone| (0 but for
            rounding).
        """
        (whole,) = _asked(self._target, [request])
        gaps: list[float] = []
        for place, token in enumerate(request.continuation):
            rivals = self._rivals(request, whole, place)
            if not rivals and place + 1 < len(request.continuation):
                continue  # the model's first choice; the last one is asked alone in any case
            before = request.context + request.continuation[:place]
            asked = [token, *rivals]
            answers = _asked(self._target, [Request(before, (other,)) for other in asked])
            own, *others = (float(answer.logprob[0]) for answer in answers)
            gaps.append(abs(own - float(whole.logprob[place])))
            gaps += [other - own for other in others]
        return max(gaps)

    def _rivals(self, request: Request, whole: TokenStats, place: int) -> list[int]:
        """Tokens that must not be likelier than the generated one.

        The model's first choice settles it. Where it is not told, other tokens of the same texts
        have to do: greedy tokens beat every one of them, at every place.
        """
        token = request.continuation[place]
        if whole.argmax is not None:
            first = int(whole.argmax[place])
            return [] if first == token else [first]
        others = (*request.continuation, *request.context, *self._pieces[0].request.continuation)
        rivals = [other for other in dict.fromkeys(others) if other != token]
        return [rivals[(place + step) % len(rivals)] for step in range(min(_N_OTHERS, len(rivals)))]

    # -- batches

    def _batch_invariance(self) -> _Found:
        self._need_pieces()
        requests = tuple(piece.request for piece in self._pieces)
        gaps: list[FloatArray] = []
        for order in (range(len(requests)), range(len(requests))[::-1]):
            answers = self._target.execute(Batch((), tuple(requests[i] for i in order)))
            if len(answers) != len(requests):
                raise _Fault(
                    f"{len(answers)} answers came to {len(requests)} requests",
                    "the target must answer each request of a batch, in its order",
                )
            for i, answer in zip(order, answers, strict=True):
                if answer.logprob.shape != self._alone[i].logprob.shape:
                    raise _Fault(
                        "a record has another number of log-probabilities in a batch",
                        "the target must answer each request of a batch, in its order",
                    )
                gaps.append(np.abs(answer.logprob - self._alone[i].logprob))
        (again,) = _asked(self._target, [requests[0]])
        repeat = _gap(again.logprob, self._alone[0].logprob)
        together = np.concatenate(gaps)
        self._scatter = float(together.mean())
        worst = float(together.max())
        n = len(requests)
        found = (
            f"largest gap {max(worst, repeat):.2g} nats, of {n} records alone, in a batch of {n} "
            "in both orders, and of one asked twice"
        )
        if not max(worst, repeat) <= self._limit:
            raise _Fault(
                f"{found}: "
                + (
                    "the same request does not get the same answer"
                    if repeat > self._limit
                    else "an answer depends on what else is in the batch"
                ),
                "likely causes: padding that is not masked, positions that count padding, or "
                "sampling that is switched on; try --batch-tokens 1 (one record at a time), "
                "--attn-implementation eager or --dtype float32",
                max(worst, repeat),
            )
        return _Found(found, value=_rounded(max(worst, repeat)))

    # -- the adapter

    def _adapter_effect(self) -> _Found:
        self._need_pieces()
        if REFERENCE not in self._models:
            raise _Unanswered("there is no reference to compare with: --reference MODEL")
        if not self._of_reference:
            raise _Unanswered("the reference reads other tokens than the target")
        before = {id(piece): answer for piece, answer in self._of_reference}
        gaps = np.concatenate(
            [
                np.abs(answer.logprob - before[id(piece)].logprob)
                for piece, answer in zip(self._pieces, self._alone, strict=True)
                if id(piece) in before
            ]
        )
        mean = float(gaps.mean())
        found = (
            f"mean |Δ| {mean:.2g} nats a token against the reference, on {len(gaps)} tokens of "
            f"{len(before)} members"
        )
        if self._target.fingerprint == self._models[REFERENCE].target.fingerprint:
            return _Found(
                f"{found}: they are one and the same model",
                value=_rounded(mean),
                status="warn",
                fix="--reference names the model before fine-tuning",
            )
        if mean <= self._floor():
            raise _Fault(
                f"{found}: the model answers as if it had not been fine-tuned",
                "likely causes: the adapter is not applied (its module names do not match, or it "
                "was saved before training), the weights were never updated, or updates were "
                "rounded away in low precision; compare the files of --model and --reference",
                mean,
            )
        if mean <= 3 * self._scatter:
            return _Found(
                f"{found}: no more than the scatter between batches ({self._scatter:.2g})",
                value=_rounded(mean),
                status="warn",
                fix="measure in higher precision: --dtype float32",
            )
        return _Found(found, value=_rounded(mean))

    def _floor(self) -> float:
        roles = [self._models[role].target for role in (TARGET, REFERENCE) if role in self._models]
        return max(_FLOOR.get(_dtype(target), _HIGHEST_FLOOR) for target in roles)

    def _need_pieces(self) -> None:
        if not self._pieces:
            raise _Unanswered(f"no record has a token to score: {self._why_none()}")

    def _why_none(self) -> str:
        return self._reasons[0] if self._reasons else "there are no records"


def _check(id_: str, limit: str, step: Callable[[], _Found]) -> Check:
    try:
        found = step()
    except _Unanswered as reason:
        return _skipped(id_, limit, str(reason))
    except OutOfMemoryError:
        raise
    except TargetError as error:
        found = _Found(error.problem, status="fail", fix=error.fix)
    except _Fault as fault:
        value = None if fault.value is None or not np.isfinite(fault.value) else fault.value
        found = _Found(fault.detail, None if value is None else _rounded(value), "fail", fault.fix)
    return Check(
        id=id_,
        title=TITLES[id_],
        status=found.status,
        value=found.value,
        limit=limit,
        detail=found.detail,
        fix=found.fix,
    )


def _skipped(id_: str, limit: str, why: str) -> Check:
    return Check(id=id_, title=TITLES[id_], status="skip", limit=limit, detail=why)


def _real(answers: Sequence[TokenStats], requests: Sequence[Request], who: str) -> int:
    """How many log-probabilities there are, all of them as they must be.

    Raises:
        _Fault: where they are not.
    """
    elsewhere = "ask another server or another version of it: this one does not compute them"
    for answer, request in zip(answers, requests, strict=True):
        n = len(request.continuation)
        for name in ("logprob", "mean", "sd", "rank", "argmax"):
            part = getattr(answer, name)
            if part is not None and np.shape(part) != (n,):
                raise _Fault(
                    f"{who} gives {np.size(part)} values ({name}) for {n} tokens", elsewhere
                )
            if part is not None and not np.isfinite(part).all():
                raise _Fault(
                    f"{who} gives values ({name}) that are not finite",
                    "its weights may be damaged, or overflow in this precision: --dtype float32",
                )
    values = np.concatenate([answer.logprob for answer in answers]).astype(np.float64)
    if not values.any():
        raise _Fault(
            f"{who} says that all of {len(values)} tokens have log-probability 0, that is, "
            "probability 1",
            f"the server ignores the request for log-probabilities of a prompt; {elsewhere}",
            0.0,
        )
    # Short records may well end in the same few tokens.
    if len(values) >= _SOME and float(np.ptp(values)) == 0:
        raise _Fault(
            f"{who} gives the same log-probability, {values[0]:.3g}, to all of {len(values)} tokens",
            elsewhere,
            float(values[0]),
        )
    if float(values.max()) > _ROUNDING:
        raise _Fault(
            f"{who} gives log-probabilities above 0, up to {values.max():.3g}",
            "they may be logits or losses: log-probabilities are at most 0",
            float(values.max()),
        )
    for answer in answers:
        _consistent(answer, who)
    return len(values)


def _consistent(answer: TokenStats, who: str) -> None:
    """Checks that what belongs to one distribution can belong to one.

    An entropy is not negative, nor is a standard deviation; and a token that r others are more
    likely than has probability 1/(r + 1) at most.
    """
    fault = None
    if answer.mean is not None and float(answer.mean.max()) > _ROUNDING:
        fault = "a negative entropy"
    elif answer.sd is not None and float(answer.sd.min()) < 0:
        fault = "a negative standard deviation"
    elif answer.rank is not None and (
        answer.rank.min() < 0 or float((answer.logprob + np.log1p(answer.rank)).max()) > _ROUNDING
    ):
        fault = "ranks that its log-probabilities contradict"
    if fault is not None:
        raise _Fault(
            f"{who} gives {fault}",
            "the statistics of a token must all come from the distribution before it",
        )


def _choices(answer: TokenStats) -> list[int]:
    """The first choice at each place.

    Raises:
        _Unanswered: where the target does not tell them.
    """
    if answer.argmax is None:
        raise _Unanswered("the target does not tell its first choices")
    return [int(token) for token in answer.argmax]


def _asked(target: LogprobTarget, requests: Sequence[Request]) -> list[TokenStats]:
    """Each request alone."""
    return [stats_of_one(target, request) for request in requests]


def _same_ids(encoder: Encoder, piece: _Piece) -> bool:
    try:
        encoded = encoder.encode(piece.record)
    except UnscorableError:
        return False
    return encoded.ids == piece.encoded.ids


def _gap(one: FloatArray, other: FloatArray) -> float:
    """Largest difference; infinite where they are not as many."""
    return float(np.abs(one - other).max()) if one.shape == other.shape else float("inf")


def _dtype(target: LogprobTarget) -> str:
    return target.describe().get("dtype", "")


def _tolerance(target: LogprobTarget) -> float:
    return _TOLERANCE.get(_dtype(target), _LOOSEST)


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
