"""How a record becomes token ids: the template, which tokens count, and what is cut off.

Ids are joined as ids: a prompt and its response are tokenized apart and their ids are put side by
side, so that no token ever spans the two, and the same response has the same ids in every
context. The first token of a text without a beginning-of-text token has no left context and is
never scored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from unseen.errors import NO_ROOM, UNANSWERED, ConfigError, UnscorableError, UsageError
from unseen.signals.base import Join
from unseen.types import Encoded, Record, Tokenizer, Turn

LossOn = Literal["completion", "assistant", "all"]
EndOfTurn = Literal["exclude", "include"]
Truncation = Literal["right", "left"]

_BETWEEN_TURNS = "\n"
_BETWEEN_RECORDS = "\n\n"
_STAND_IN = "{response}"
# Of encoded records, in memory: half a gigabyte or so.
_KEPT_TOKENS = 2**24


@dataclass(frozen=True)
class Layout:
    """The choices that turn records into token ids.

    Attributes:
        template: "auto" (the tokenizer's chat template for conversations, plain text for
            documents), "chat", "plain", or the path of a Jinja file.
        loss_on: which tokens count: of the last assistant turn ("completion"), of every assistant
            turn ("assistant"), or all of them ("all"). Documents always count as a whole.
        end_of_turn: whether the token that ends a scored turn is scored too.
        truncation: which end of a record is cut where it is longer than the context; on the left,
            after a beginning-of-text token. Trainers cut on the right.
        max_length: tokens; None means the model's limit.
    """

    template: str = "auto"
    loss_on: LossOn = "completion"
    end_of_turn: EndOfTurn = "exclude"
    truncation: Truncation = "right"
    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 2:
            raise ConfigError(f"got max_length {self.max_length}, expected at least 2 tokens")


class RecordEncoder:
    """Encodes records for one tokenizer, each once however often it is asked for.

    Args:
        tokenizer: of the model that is asked.
        layout: the template and its choices.
        limit: the longest sequence that the model can read, in tokens.

    Attributes:
        template: the Jinja source in force for conversations, or None for plain text.

    Raises:
        ConfigError: where the layout needs a chat template and there is none, or its file cannot
            be read.
    """

    def __init__(self, tokenizer: Tokenizer, layout: Layout, *, limit: int) -> None:
        self.tokenizer = tokenizer
        self.layout = layout
        self.max_length = min(limit, layout.max_length or limit)
        self.template = _template_source(layout.template, tokenizer)
        self._ids = lru_cache(maxsize=4096)(lambda text: tuple(tokenizer.encode(text)))
        # Full, it keeps what it has: of many records read in the same order over and over, the
        # latest are never those that come next.
        self._kept: dict[tuple[Turn, ...], Encoded] = {}
        self._n_kept = 0

    @property
    def fingerprint(self) -> str:
        """Content hash of tokenizer, template and choices."""
        about = [
            self.tokenizer.fingerprint,
            self.template,
            self.layout.loss_on,
            self.layout.end_of_turn,
            self.layout.truncation,
            self.max_length,
        ]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def encode(
        self, record: Record, *, before: Sequence[Record] = (), join: Join = "turn"
    ) -> Encoded:
        """Token ids of a record, after other records where any are given.

        Args:
            record: whose tokens are scored.
            before: records that stand before it; their tokens are never scored.
            join: where these stand: as earlier turns, as text at the head of the record's first
                user turn, or, "plain", before the record without any template, which is then left
                out of the record as well.

        Raises:
            UnscorableError: where the response is empty, nothing is left to score, the template does
                not reproduce the record, or the record does not fit after the others.
        """
        if not record.is_answered:
            raise UnscorableError(UNANSWERED)
        if before or join == "plain":
            return self._encoded(record, before, join)
        encoded = self._kept.get(record.turns)
        if encoded is None:
            encoded = self._encoded(record, (), join)
            if self._n_kept + len(encoded.ids) <= _KEPT_TOKENS:
                self._kept[record.turns] = encoded
                self._n_kept += len(encoded.ids)
        return encoded

    def scored_text(self, record: Record) -> str:
        """The text whose tokens are scored, as far as it was not cut off."""
        encoded = self.encode(record)
        if (encoded.truncated and encoded.left_out) or self.layout.loss_on == "all":
            return self.tokenizer.decode(
                [id_ for id_, counts in zip(encoded.ids, encoded.scored, strict=True) if counts]
            )
        return "".join(record.turns[i].content for i in self._scored_turns(record.turns))

    def prompt(self, turns: Sequence[Turn], begun: str = "") -> tuple[int, ...]:
        """Token ids that ask for what comes next, the same as those of a record that goes on so.

        Args:
            turns: what was said before; none before a document.
            begun: how the answer, or the document, begins.

        Raises:
            UnscorableError: where the template does not reproduce it, there is no token to go on
                from, or no room for one more.
        """
        said = Turn("assistant" if turns else "text", begun or _STAND_IN)
        record = Record("", (*turns, said))
        ids, _, _ = self._open._whole(record, (), plain=self._is_plain(record))  # noqa: SLF001 (of this class)
        if not begun:
            del ids[len(ids) - len(self._ids(_STAND_IN)) :]
        if not ids:
            reason = "there is no token to go on from"
            raise UnscorableError(reason)
        if len(ids) >= self.max_length:
            reason = "there is no room in the context for an answer"
            raise UnscorableError(reason)
        return tuple(ids)

    @cached_property
    def _open(self) -> RecordEncoder:
        """The same, for records that end with the text of their last response."""
        layout = replace(self.layout, loss_on="completion", end_of_turn="exclude")
        if layout == self.layout:
            return self
        return RecordEncoder(self.tokenizer, layout, limit=self.max_length)

    def scored_turns(self, record: Record) -> list[int]:
        """Places of the turns that loss is computed on.

        Raises:
            UnscorableError: where there is none.
        """
        return self._scored_turns(record.turns)

    def _encoded(self, record: Record, before: Sequence[Record], join: Join) -> Encoded:
        plain = join == "plain" or self._is_plain(record)
        if join == "user" and before:
            ids, counts, shared = self._whole(self._holding(record, before), (), plain=plain)
        else:
            ids, counts, shared = self._whole(record, before, plain=plain)
        scored = list(counts)
        if plain and self.tokenizer.bos_id is None:
            # Also after other records, so that the same ids are scored in every context.
            scored[shared : shared + 1] = [False] * len(scored[shared : shared + 1])
        excess = max(0, len(ids) - self.max_length)
        if excess and before:
            raise UnscorableError(NO_ROOM)
        if excess:
            start = self._n_begin(ids) if self.layout.truncation == "left" else self.max_length
            cut = slice(start, start + excess)
            del ids[cut], scored[cut]
        mask = np.array(scored, dtype=bool)
        mask[:1] = False
        if not mask.any():
            reason = (
                f"nothing to score is left after cutting to {self.max_length} tokens"
                if excess
                else "no token to score: one token has no left context"
            )
            raise UnscorableError(reason)
        return Encoded(tuple(ids), mask, shared, excess, sum(counts) - int(mask.sum()))

    def _is_plain(self, record: Record) -> bool:
        return self.template is None or record.turns[0].role == "text"

    def _holding(self, record: Record, before: Sequence[Record]) -> Record:
        """The record with other records as text at the head of its first user turn."""
        place = next((i for i, turn in enumerate(record.turns) if turn.role == "user"), None)
        if place is None:
            reason = "there is no user turn that other records could stand in"
            raise UnscorableError(reason)
        if self.layout.loss_on == "all":
            reason = "every token counts, so other records inside the user turn would count too"
            raise UnscorableError(reason)
        shots = [_BETWEEN_TURNS.join(_said_in(shot)) for shot in before]
        held = _BETWEEN_RECORDS.join([*shots, record.turns[place].content])
        turns = [*record.turns[:place], Turn("user", held), *record.turns[place + 1 :]]
        return replace(record, turns=tuple(turns))

    def _whole(
        self, record: Record, before: Sequence[Record], *, plain: bool
    ) -> tuple[list[int], list[bool], int]:
        """All ids, which of them count, and how many stand before; nothing is cut yet."""
        return (self._plain if plain else self._chat)(record, before)

    def _n_begin(self, ids: Sequence[int]) -> int:
        """How many ids a text begins with, whatever follows: 1, or 0 where it just begins.

        Models that were trained with a beginning-of-text token are not at home without it.
        """
        if ids[0] == self.tokenizer.bos_id:
            return 1
        # The tokenizer adds none itself, but the template may write it.
        written = self.template is not None and "bos_token" in self.template
        return int(written and not self.tokenizer.decode(ids[:1]))

    def _plain(self, record: Record, before: Sequence[Record]) -> tuple[list[int], list[bool], int]:
        bos = self.tokenizer.bos_id
        ids = [] if bos is None else [bos]
        for shot in before:
            for turn in shot.turns:
                ids += self._ids(turn.content)
                ids += self._ids(_BETWEEN_RECORDS if turn is shot.turns[-1] else _BETWEEN_TURNS)
        shared = len(ids) if before else 0
        scored = [False] * len(ids)
        counts = self._scored_turns(record.turns)
        for i, turn in enumerate(record.turns[: max(counts) + 1]):
            text = turn.content if i == max(counts) else turn.content + _BETWEEN_TURNS
            piece = self._ids(text)
            whole = i in counts or self.layout.loss_on == "all"
            scored += [whole] * len(piece)
            ids += piece
        if self.layout.end_of_turn == "include":
            if self.tokenizer.eos_id is None:
                reason = "the tokenizer has no end-of-text token to score"
                raise UnscorableError(reason)
            ids.append(self.tokenizer.eos_id)
            scored.append(True)
        return ids, scored, shared

    def _chat(self, record: Record, before: Sequence[Record]) -> tuple[list[int], list[bool], int]:
        turns, n_shots = _conversation(record, before)
        counts = {n_shots + i for i in self._scored_turns(turns[n_shots:])}
        done = self._rendered(turns[:n_shots]) if before else ""
        ids = list(self._ids(done)) if before else []
        shared = len(ids)
        scored = [False] * shared
        everything = self.layout.loss_on == "all"
        end_counts = False
        for i in range(n_shots, max(counts) + 1):
            if turns[i].role != "assistant":
                continue
            header = _after(done, self._rendered(turns[:i], prompt=True))
            lead, content, tail = self._said(turns, i, done + header)
            header += lead
            segment = self._ids(header)
            scored += [everything or (end_counts and j == 0) for j in range(len(segment))]
            ids += segment
            piece = self._ids(content)
            scored += [everything or i in counts] * len(piece)
            ids += piece
            done += header + content
            end_counts = i in counts and self.layout.end_of_turn == "include"
        if end_counts or everything:
            ending = self._ids(tail)
            keep = len(ending) if everything else min(1, len(ending))
            ids += ending[:keep]
            scored += [True] * keep
        return ids, scored, shared

    def _said(self, turns: tuple[Turn, ...], i: int, so_far: str) -> tuple[str, str, str]:
        """What the template writes for turn i: what it puts before, the content, what follows."""
        rest = _after(so_far, self._rendered(turns[: i + 1]))
        said = turns[i].content
        forms = [form for form in (said, said.rstrip(), said.lstrip(), said.strip()) if form]
        # Another content in its place shows what the template itself writes around it, for
        # example an empty thought; templates that look into contents are taken at their word.
        other = (*turns[:i], Turn(turns[i].role, _STAND_IN))
        lead, found, tail = _after(so_far, self._rendered(other)).partition(_STAND_IN)
        for content in forms:
            if found and rest == lead + content + tail:
                return lead, content, tail
        for content in forms:
            if rest.startswith(content):
                return "", content, rest[len(content) :]
        reason = "the chat template does not reproduce the response as it is"
        raise UnscorableError(reason)

    def _rendered(self, turns: tuple[Turn, ...], *, prompt: bool = False) -> str:
        if self.template is None:
            msg = "plain layouts have nothing to render"
            raise AssertionError(msg)
        try:
            return self.tokenizer.render(
                turns, template=self.template, add_generation_prompt=prompt
            )
        except UsageError as error:
            raise UnscorableError(error.problem) from error

    def _scored_turns(self, turns: Sequence[Turn]) -> list[int]:
        said = [i for i, turn in enumerate(turns) if turn.is_response]
        if not said:
            reason = "no assistant turn to score"
            raise UnscorableError(reason)
        return said[-1:] if self.layout.loss_on == "completion" else said


def _conversation(record: Record, before: Sequence[Record]) -> tuple[tuple[Turn, ...], int]:
    """All turns, the record's own system turn first, and how many stand before the record."""
    own = record.turns
    system = own[:1] if own[0].role == "system" else ()
    shots = tuple(turn for shot in before for turn in shot.turns if turn.role != "system")
    if not before:
        return own, 0
    return (*system, *shots, *own[len(system) :]), len(system) + len(shots)


def _said_in(shot: Record) -> list[str]:
    """The contents of a record's turns, but for what the system says."""
    return [turn.content for turn in shot.turns if turn.role != "system"]


def _after(done: str, whole: str) -> str:
    if not whole.startswith(done):
        reason = "the chat template rewrites earlier turns"
        raise UnscorableError(reason)
    return whole[len(done) :]


def _template_source(template: str, tokenizer: Tokenizer) -> str | None:
    if template == "plain":
        return None
    if template in ("auto", "chat"):
        if tokenizer.chat_template is None and template == "chat":
            raise no_chat_template()
        return tokenizer.chat_template
    path = Path(template)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the template file {template}: {error}",
            fix="auto, chat, plain, or the path of a Jinja file: FILE.jinja",
        ) from error


def no_chat_template() -> ConfigError:
    """The error for conversations that meet a tokenizer without a chat template."""
    return ConfigError(
        "the tokenizer has no chat template",
        fix="use the template that the model was trained with: --template FILE.jinja, "
        "or join prompt and response as plain text: --template plain",
    )


def check_layout(encoder: RecordEncoder, records: Sequence[Record]) -> None:
    """Refuses conversations that an "auto" layout would silently join as plain text.

    Raises:
        ConfigError: where records are conversations and there is no chat template.
    """
    asked = encoder.layout.template == "auto" and encoder.template is None
    if asked and any(record.turns[0].role != "text" for record in records):
        raise no_chat_template()
