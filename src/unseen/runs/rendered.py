"""A record as the model reads it: what the template writes is shown, what the record says is counted.

Only tokens that the template writes around any record are shown. Where it cannot be told whether a
token is the template's or the record's, it counts as the record's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from unseen.data.templates import RecordEncoder
from unseen.errors import UnscorableError, UsageError, short
from unseen.runs.results import RenderedPart
from unseen.signals.base import Encoder
from unseen.targets.characters import tokens_of
from unseen.types import Encoded, Record, Tokenizer, Turn

_BOS = "{{ bos_token }}"
_EOS = "{{ eos_token }}"
_LONGEST = 80


def rendered(records: Sequence[Record], encoder: Encoder) -> tuple[RenderedPart, ...]:
    """The first record that can be scored, in parts; empty where none can be."""
    for record in records:
        try:
            encoded = encoder.encode(record)
        except UnscorableError:
            continue
        return parts_of(record, encoded, encoder)
    return ()


def parts_of(record: Record, encoded: Encoded, encoder: Encoder) -> tuple[RenderedPart, ...]:
    """An encoded record, in parts of one kind that are all scored, or all not."""
    tokenizer = encoder.tokenizer
    own, specials = _of_template(record, encoded, encoder)
    kinds = [
        "content" if not of_template else "special" if not tokenizer.decode([id_]) else "template"
        for id_, of_template in zip(encoded.ids, own, strict=True)
    ]
    parts: list[RenderedPart] = []
    marked = zip(kinds, encoded.scored.tolist(), encoded.ids, strict=True)
    for (kind, scored), group in groupby(marked, key=lambda token: token[:2]):
        ids = tuple(id_ for _, _, id_ in group)
        shown = kind != "content"
        parts.append(
            RenderedPart.model_validate(
                {
                    "kind": kind,
                    "n_tokens": tokens_of(tokenizer, len(ids)),
                    "scored": scored,
                    "text": _text(ids, tokenizer, specials) if shown else None,
                    "ids": ids if shown else None,
                }
            )
        )
    return tuple(parts)


def in_a_line(parts: Sequence[RenderedPart]) -> str:
    """The parts in a row, their contents as counts.

    >>> in_a_line([RenderedPart(kind="special", n_tokens=1, scored=False, text="<s>", ids=(1,)),
    ...            RenderedPart(kind="content", n_tokens=9, scored=True)])
    '<s> [9 tokens, scored]'
    """
    words: list[str] = []
    for part in parts:
        if part.text is None:
            tokens = "1 token" if part.n_tokens == 1 else f"{part.n_tokens} tokens"
            words.append(f" [{tokens}{', scored' if part.scored else ''}] ")
        else:
            words.append(short(part.text, _LONGEST))
    return "".join(words).strip(" ")


def beginning_id(tokenizer: Tokenizer) -> int | None:
    """The id of the token for a beginning of text, also where only a template writes it."""
    return tokenizer.bos_id if tokenizer.bos_id is not None else _id_of(_BOS, tokenizer)


def _id_of(template: str, tokenizer: Tokenizer) -> int | None:
    ids = tokenizer.encode(_written(template, tokenizer))
    return ids[0] if len(ids) == 1 else None


def _written(template: str, tokenizer: Tokenizer) -> str:
    """What a template makes of a conversation that it does not look into; empty where it fails."""
    try:
        return tokenizer.render(
            (Turn("user", "."),), template=template, add_generation_prompt=False
        )
    except UsageError:
        return ""


def _of_template(
    record: Record, encoded: Encoded, encoder: Encoder
) -> tuple[list[bool], dict[int, str]]:
    """Which tokens stand around any record, and the text of the special ones among them."""
    tokenizer, ids = encoder.tokenizer, encoded.ids
    own = [False] * len(ids)
    specials: dict[int, str] = {}
    for template, id_ in ((_BOS, tokenizer.bos_id), (_EOS, tokenizer.eos_id)):
        if id_ is not None:
            specials[id_] = _written(template, tokenizer)
    own[0] = ids[0] == tokenizer.bos_id
    own[-1] = ids[-1] == tokenizer.eos_id
    start = 0
    for number, segment in enumerate(_segments(record, encoder)):
        piece = tokenizer.encode(segment)
        specials |= _special_texts(segment, piece, tokenizer)
        place = _find(ids, piece, start, here=number == 0)
        if place is not None:
            start = place[1]
            own[slice(*place)] = [True] * (place[1] - place[0])
    return own, specials


def _segments(record: Record, encoder: Encoder) -> list[str]:
    """What the template writes before, between and after the turns of any such conversation."""
    template = encoder.template if isinstance(encoder, RecordEncoder) else None
    if template is None or record.turns[0].role == "text":
        return []
    names = [f"zq{number}qz" for number in range(len(record.turns))]
    turns = tuple(Turn(turn.role, name) for turn, name in zip(record.turns, names, strict=True))
    try:
        rest = encoder.tokenizer.render(turns, template=template, add_generation_prompt=False)
    except UsageError:
        return []
    segments: list[str] = []
    for name in names:
        before, found, rest = rest.partition(name)
        if not found:
            return []
        segments.append(before)
    return [*segments, rest]


def _find(
    ids: Sequence[int], piece: Sequence[int], start: int, *, here: bool
) -> tuple[int, int] | None:
    """Where a piece stands in ids, from `start` on.

    Its first and its last token may have merged with the record's text: it is then looked for
    without them.
    """
    for cut in ((0, 0), (0, 1), (1, 0), (1, 1)):
        wanted = tuple(piece[cut[0] : len(piece) - cut[1]])
        if not wanted or (cut != (0, 0) and len(wanted) < 2):
            continue
        first = range(start, start + 1) if here else range(start, len(ids) - len(wanted) + 1)
        for place in first:
            if tuple(ids[place : place + len(wanted)]) == wanted:
                return place, place + len(wanted)
    return None


def _special_texts(segment: str, ids: Sequence[int], tokenizer: Tokenizer) -> dict[int, str]:
    """Id -> text of the special tokens of a segment, as far as its other tokens tell them apart."""
    found: dict[int, str] = {}
    for run, text in _special_runs(segment, ids, tokenizer):
        rest = text
        for id_ in run[:-1]:
            length = next(
                (n for n in range(1, len(rest)) if tokenizer.encode(rest[:n]) == [id_]), None
            )
            if length is None:
                break
            found[id_], rest = rest[:length], rest[length:]
        else:
            found[run[-1]] = rest
    return found


def _special_runs(
    segment: str, ids: Sequence[int], tokenizer: Tokenizer
) -> Iterator[tuple[list[int], str]]:
    """Runs of special tokens, and the text between the ordinary ones beside them."""
    run: list[int] = []
    start = 0
    for special, group in groupby(ids, key=lambda id_: not tokenizer.decode([id_])):
        tokens = list(group)
        if special:
            run = tokens
            continue
        text = tokenizer.decode(tokens)
        place = segment.find(text, start)
        if place < 0:
            return
        if run:
            yield run, segment[start:place]
        run, start = [], place + len(text)
    if run:
        yield run, segment[start:]


def _text(ids: Sequence[int], tokenizer: Tokenizer, specials: dict[int, str]) -> str:
    """The text of tokens of one kind."""
    if tokenizer.decode(ids):
        return tokenizer.decode(ids)
    return "".join(specials.get(id_, f"<{id_}>") for id_ in ids)
