"""What puts other words into a text: masked language models, T5, and word embeddings.

A filler is a model that is not audited. It never sees who is a member. What it makes of a text
depends on the text, its choices and the random numbers that it is given, and on no other text.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unseen.errors import ModelError, UnscorableError, first_line, need
from unseen.targets.edits import UNKNOWN, Edit, Swap, early, edited, within
from unseen.targets.files import fingerprint_of, locate
from unseen.targets.quiet import quiet
from unseen.targets.thesaurus import is_thesaurus, open_thesaurus
from unseen.targets.words import Span, Vocabulary, cased_like, word_spans
from unseen.types import FloatArray

EMBEDDINGS = "embeddings"
"""The filler that needs no further model: word embeddings of the target itself."""
_OF = f"{EMBEDDINGS}:"

_EXAMPLES = (
    "name the folder or hub name of a masked language model (for example FacebookAI/roberta-base), "
    "of a T5 (google-t5/t5-large), embeddings:MODEL for the word embeddings of any model, list:FILE for "
    "words of your own, or wordnet:FOLDER"
)
_T5 = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
_CERTAIN = 0.1  # what stands for 1 - p where the original word is certain, as in the published code
_NUMBERS = 2**24  # floats of logits that are in memory at once
_ROWS = 64
_SPANS = 24  # masked spans that T5 fills at a time; its vocabulary has a hundred names for them
_AROUND = 400  # characters around them that it sees
_TRIES = 4


class Filler(Protocol):
    """Puts other words into texts."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def about(self) -> str:
        """What it is, in a few words, for the run record."""

    @property
    def fingerprint(self) -> str:
        """Content hash: what it makes of a text follows from it."""

    @property
    def swaps_words(self) -> bool:
        """Whether it can say how well single words fit."""

    def check(self, texts: Sequence[str]) -> None:
        """Tries it on some texts.

        Raises:
            ModelError: where it does not know what it says.
        """

    def swaps(
        self,
        text: str,
        *,
        top_k: int,
        dropout: float,
        rng: np.random.Generator,
        until: int | None = None,
    ) -> list[Swap]:
        """For every word that it knows, the best others; the best of all first.

        Args:
            text: the text.
            top_k: others for each word.
            dropout: share of the word's embedding that is hidden while the model guesses, in [0, 1).
            rng: draws that share.
            until: only words that end here or before are swapped; all are read.

        Raises:
            UnscorableError: where it knows no word of the text.
        """

    def refills(
        self,
        text: str,
        spans: Sequence[Span],
        *,
        ways: int,
        top_k: int,
        rng: np.random.Generator,
    ) -> list[tuple[Edit, ...]]:
        """Other words for some stretches of a text, up to `ways` times differently.

        Args:
            text: the text.
            spans: (start, stop) of words in a row, in order, not overlapping.
            ways: how many different ones are wanted.
            top_k: a word is drawn from so many.
            rng: draws.
        """


@runtime_checkable
class HasWordEmbeddings(Protocol):
    """A target whose word embeddings can be read."""

    def word_embeddings(self) -> tuple[Any, FloatArray]:
        """Its tokenizer of transformers, and (vocabulary, width) input embeddings."""


def open_filler(
    name: str, *, device: str = "auto", cache_dir: Path | None = None, target: Any = None
) -> Filler:
    """Loads what a user names as filler.

    Args:
        name: "embeddings" (of `target`), "embeddings:MODEL", the folder or hub name of a masked language
            model or a T5, "list:FILE" or "wordnet:FOLDER".
        device: "auto", or as torch says it.
        cache_dir: where a converted GGUF model is kept.
        target: the audited model.

    Raises:
        ModelError: where it cannot be loaded, or cannot fill in words.
    """
    if name == EMBEDDINGS:
        if not isinstance(target, HasWordEmbeddings):
            raise ModelError("the target does not show its word embeddings", fix=_EXAMPLES)
        tokenizer, matrix = target.word_embeddings()
        return EmbeddingFiller(name, tokenizer, matrix, of=getattr(target, "name", "the target"))
    if is_thesaurus(name):
        return open_thesaurus(name)
    transformers = need("transformers", "hf")
    place = name.removeprefix(_OF)
    try:
        source = locate(place, cache_dir=cache_dir)
        with quiet():
            config = transformers.AutoConfig.from_pretrained(source.model)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source.model)
            if place != name:
                model = transformers.AutoModel.from_pretrained(source.model)
                matrix = model.get_input_embeddings().weight.detach().float().numpy()
                return EmbeddingFiller(name, tokenizer, matrix, of=place)
            kind = (
                transformers.AutoModelForSeq2SeqLM
                if config.model_type in _T5
                else transformers.AutoModelForMaskedLM
            )
            model, info = kind.from_pretrained(
                source.model, output_loading_info=True, dtype=need("torch", "hf").float32
            )
    except ModelError as error:
        raise ModelError(f"cannot load the filler: {error.problem}", fix=_EXAMPLES) from error
    except Exception as error:
        why = first_line(error)[:200]
        if why.startswith("Unrecognized configuration class"):
            why = "it is neither a masked language model nor a T5"
        raise ModelError(f"cannot load the filler {name}: {why}", fix=_EXAMPLES) from error
    if missing := sorted(info.get("missing_keys", ())):
        raise _random_head(name, f"its folder has no weights for {missing[0]}")
    if not tokenizer.is_fast:
        raise ModelError(f"the filler {name} needs a fast tokenizer (tokenizer.json)")
    on = _device(device)
    model = model.to(on).eval().requires_grad_(False)  # noqa: FBT003 (torch's own signature)
    made = T5Filler if config.model_type in _T5 else MaskedFiller
    return made(name, model, tokenizer, fingerprint_of(source))


def _device(device: str) -> str:
    torch = need("torch", "hf")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def _random_head(name: str, why: str) -> ModelError:
    return ModelError(
        f"the filler {name} has not learned to fill in words: {why}",
        fix="name a model with a trained head (for example FacebookAI/roberta-base), or take the word "
        f"embeddings alone: filler={_OF}{name}",
    )


# --- word embeddings ----------------------------------------------------------------------------


class EmbeddingFiller:
    """Words whose embeddings are alike (cosine); it knows nothing of the words around them.

    A stand-in where there is no masked language model: quick, in any language that the model has whole
    words of, and blind to grammar.

    Args:
        name: what the user calls it.
        tokenizer: of transformers.
        matrix: (vocabulary, width) input embeddings.
        of: whose they are.
    """

    swaps_words = True

    def __init__(self, name: str, tokenizer: Any, matrix: FloatArray, *, of: str) -> None:
        self.name = name
        self.about = f"cosine of the word embeddings of {of}"
        self._words = Vocabulary(tokenizer)
        if not len(self._words.ids):
            raise ModelError(f"the vocabulary of {of} has no whole words to swap", fix=_EXAMPLES)
        vectors = np.asarray(matrix[self._words.ids], dtype=np.float32)
        digest = hashlib.sha256("\0".join(self._words.words).encode() + vectors.tobytes())
        self.fingerprint = f"embeddings-{digest.hexdigest()[:32]}"
        self._vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        self._near: dict[tuple[int, int], list[tuple[int, float]]] = {}

    def check(self, texts: Sequence[str]) -> None:
        """There is nothing that could be untrained."""

    def swaps(
        self,
        text: str,
        *,
        top_k: int,
        dropout: float,  # noqa: ARG002 (no model guesses)
        rng: np.random.Generator,  # noqa: ARG002
        until: int | None = None,
    ) -> list[Swap]:
        """For every word that it knows, those most alike.

        score = cosine - rank: cosines of different words say little of each other (a plural is always
        near), so first comes the best other of every word, then the second, and so on.
        """
        known = self._known(text, [span for span in word_spans(text) if early(span, until)])
        near = self._nearest([at for _, at in known], top_k)
        found = [
            Swap(
                Edit(*span, cased_like(self._words.words[other], text[slice(*span)])), cosine - rank
            )
            for (span, _), others in zip(known, near, strict=True)
            for rank, (other, cosine) in enumerate(others)
        ]
        return _best_first(found)

    def refills(
        self,
        text: str,
        spans: Sequence[Span],
        *,
        ways: int,
        top_k: int,
        rng: np.random.Generator,
    ) -> list[tuple[Edit, ...]]:
        """Of the words most alike, those that lie furthest along a random direction, and against it.

        So two ways are symmetric about the text: +z and -z.
        """
        inside = [span for span in word_spans(text) if within(span, spans)]
        known = self._known(text, inside)
        near = self._nearest([at for _, at in known], top_k)
        made: dict[tuple[Edit, ...], None] = {}
        for pair in range(-(-ways // 2)):
            direction = rng.standard_normal(self._vectors.shape[1]).astype(np.float32)
            for sign in (1, -1)[: ways - 2 * pair]:
                edits = []
                for (span, at), others in zip(known, near, strict=True):
                    if others:
                        places = [other for other, _ in others]
                        along = sign * (self._vectors[places] - self._vectors[at]) @ direction
                        word = self._words.words[places[int(along.argmax())]]
                        edits.append(Edit(*span, cased_like(word, text[slice(*span)])))
                made[tuple(edits)] = None
        return [edits for edits in made if edits]

    def _known(self, text: str, spans: Sequence[Span]) -> list[tuple[Span, int]]:
        places = ((span, self._words.place(text[slice(*span)])) for span in spans)
        known = [(span, at) for span, at in places if at is not None]
        if not known:
            raise UnscorableError(UNKNOWN)
        return known

    def _nearest(self, places: Sequence[int], top_k: int) -> list[list[tuple[int, float]]]:
        """For each place, the `top_k` places of other words that are most alike, and how much."""
        new = sorted({at for at in places if (at, top_k) not in self._near})
        folded = self._words.folded
        for start in range(0, len(new), _ROWS):
            part = new[start : start + _ROWS]
            # Some are the word itself in another case, or each other's.
            n = min(4 * top_k + 8, len(folded))
            # Rounding depends on how many rows are multiplied: what is equal must stay so.
            alike = (self._vectors[part] @ self._vectors.T).astype(np.float64).round(5)
            for at, row in zip(part, alike, strict=True):
                order = np.argpartition(-row, n - 1)[:n]
                order = order[np.lexsort((order, -row[order]))]
                best: dict[str, tuple[int, float]] = {}
                for other in order.tolist():
                    if folded[other] != folded[at]:
                        best.setdefault(folded[other], (other, float(row[other])))
                self._near[at, top_k] = list(best.values())[:top_k]
        return [self._near[at, top_k] for at in places]


# --- masked language models -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A word of a text in the tokens of a window: tokens first to last, exclusively."""

    span: Span
    window: int
    first: int
    last: int


class MaskedFiller:
    """A masked language model, such as BERT or RoBERTa, that guesses words one by one.

    Args:
        name: what the user calls it.
        model: of transformers, with a trained head.
        tokenizer: its fast tokenizer.
        fingerprint: content hash of the model.
    """

    swaps_words = True

    def __init__(self, name: str, model: Any, tokenizer: Any, fingerprint: str) -> None:
        self.name = name
        self.about = f"masked language model {name}"
        self.fingerprint = f"masked-{fingerprint}"
        if tokenizer.mask_token_id is None:
            raise ModelError(f"the filler {name} has no mask token", fix=_EXAMPLES)
        self._model, self._tokenizer = model, tokenizer
        self._words = Vocabulary(tokenizer)
        self._limit = self._longest()
        self._head = self._head_apart()

    def check(self, texts: Sequence[str]) -> None:
        """Hides words of the texts: a trained model guesses them far better than at random.

        Raises:
            ModelError: where it does not.
        """
        torch = need("torch", "hf")
        losses: list[float] = []
        for text in texts:
            windows, places = self._read(text)
            single = [place for place in places if place.last == place.first + 1][:_ROWS]
            mask = self._tokenizer.mask_token_id
            rows = [self._with(windows[p.window], p, [mask]) for p in single]
            own = [windows[p.window][p.first] for p in single]
            for at, logits in enumerate(self._guesses(rows, [p.first for p in single])):
                losses.append(-float(torch.log_softmax(logits, -1)[own[at]]))
        uniform = math.log(len(self._tokenizer))
        if len(losses) >= 20 and np.mean(losses) > uniform - 1:
            raise _random_head(
                self.name,
                f"hidden words cost it {np.mean(losses):.2f} nats, blind guessing {uniform:.2f}",
            )

    def swaps(
        self,
        text: str,
        *,
        top_k: int,
        dropout: float,
        rng: np.random.Generator,
        until: int | None = None,
    ) -> list[Swap]:
        """Guesses for each word while a share of its embedding is hidden (Zhou et al. 2019).

        score = p(other) / (1 - p(original)), as in Mattern et al. 2023, with 0.1 for a difference of 0.
        A word of several tokens is hidden as a whole, by one mask: p(original) is then 0. What is
        kept of an embedding is scaled by 1 / (1 - dropout), as torch's dropout does; only the word
        embedding is touched, the model adds positions itself.
        """
        windows, places = self._read(text)
        places = [place for place in places if early(place.span, until)]
        if not places:
            raise UnscorableError(UNKNOWN)
        torch = need("torch", "hf")
        table = self._model.get_input_embeddings()
        width = int(table.weight.shape[1])
        mask = self._tokenizer.mask_token_id
        rows: list[list[int]] = []
        kept: list[FloatArray | None] = []
        for place in places:
            whole = place.last == place.first + 1
            own = windows[place.window]
            rows.append(own if whole else self._with(own, place, [mask]))
            drawn = rng.random(width) >= dropout
            kept.append((drawn / (1 - dropout)).astype(np.float32) if whole else None)
        found: list[Swap] = []
        at_once = self._guesses(rows, [place.first for place in places], kept)
        for place, logits in zip(places, at_once, strict=True):
            p = torch.softmax(logits.double(), -1).numpy()
            original = windows[place.window][place.first : place.last]
            p_original = float(p[original[0]]) if len(original) == 1 else 0.0
            left = 1 - p_original
            for word, likely in self._others(text[slice(*place.span)], p, top_k):
                found.append(
                    Swap(Edit(*place.span, word), likely / (left if left > 0 else _CERTAIN))
                )
        return _best_first(found)

    def refills(
        self,
        text: str,
        spans: Sequence[Span],
        *,
        ways: int,
        top_k: int,
        rng: np.random.Generator,
    ) -> list[tuple[Edit, ...]]:
        """Hides all words of the stretches together, each by one mask, and draws from the guesses."""
        windows, places = self._read(text)
        hidden = [place for place in places if within(place.span, spans)]
        if not hidden:
            raise UnscorableError(UNKNOWN)
        mask = self._tokenizer.mask_token_id
        rows: list[list[int]] = []
        columns: list[int] = []
        by_window: dict[int, list[_Place]] = {}
        for place in hidden:
            by_window.setdefault(place.window, []).append(place)
        for window, of_window in by_window.items():
            row: list[int] = []
            end = 0
            for place in of_window:
                row += windows[window][end : place.first]
                columns.append(len(row))
                row.append(mask)
                end = place.last
            rows += [row + windows[window][end:]] * len(of_window)
        torch = need("torch", "hf")
        choices: list[list[tuple[str, float]]] = []
        ordered = [place for of_window in by_window.values() for place in of_window]
        for place, logits in zip(ordered, self._guesses(rows, columns), strict=True):
            p = torch.softmax(logits.double(), -1).numpy()
            choices.append(self._others(text[slice(*place.span)], p, top_k))
        made: dict[tuple[Edit, ...], None] = {}
        for _ in range(_TRIES * ways):
            edits = []
            for place, others in zip(ordered, choices, strict=True):
                if others:
                    weights = np.array([likely for _, likely in others])
                    word = others[int(rng.choice(len(others), p=weights / weights.sum()))][0]
                    edits.append(Edit(*place.span, word))
            made[tuple(sorted(edits, key=lambda edit: edit.start))] = None
            if len(made) == ways:
                break
        return [edits for edits in made if edits]

    def _others(self, original: str, p: FloatArray, top_k: int) -> list[tuple[str, float]]:
        """The likeliest whole words but the original, in its case, and their probabilities."""
        likely = p[self._words.ids]
        n = min(4 * top_k + 8, len(likely))
        order = np.argpartition(-likely, n - 1)[:n]
        order = order[np.lexsort((order, -likely[order]))]
        best: dict[str, float] = {}
        for at in order.tolist():
            if self._words.folded[at] != original.casefold() and likely[at] > 0:
                best.setdefault(cased_like(self._words.words[at], original), float(likely[at]))
        return list(best.items())[:top_k]

    def _read(self, text: str) -> tuple[list[list[int]], list[_Place]]:
        """Windows of token ids that the model can read, and where the words are in them.

        A word is looked at in the window in which most text stands on both its sides.
        """
        made = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        ids, offsets = list(made["input_ids"]), list(made["offset_mapping"])
        begin, end = self._frame
        room = self._limit - len(begin) - len(end)
        starts = list(range(0, max(1, len(ids) - room // 2), max(1, room // 2)))
        windows = [[*begin, *ids[start : start + room], *end] for start in starts]
        places: list[_Place] = []
        at = 0
        for span in word_spans(text):
            while at < len(ids) and offsets[at][1] <= span[0]:
                at += 1
            last = at
            while last < len(ids) and offsets[last][0] < span[1]:
                last += 1
            inside = last > at and all(
                span[0] <= start + _blank(text, start, stop) and stop <= span[1]
                for start, stop in offsets[at:last]
            )
            if not inside or self._tokenizer.unk_token_id in ids[at:last]:
                continue
            fits = [
                (min(at - start, start + room - last), -w)
                for w, start in enumerate(starts)
                if start <= at and last <= start + room
            ]
            if not fits:
                continue
            window = -max(fits)[1]
            first = at - starts[window] + len(begin)
            places.append(_Place(span, window, first, first + last - at))
        return windows, places

    @property
    def _frame(self) -> tuple[list[int], list[int]]:
        """What stands before and after a text."""
        made = list(self._tokenizer("", verbose=False)["input_ids"])
        half = (len(made) + 1) // 2
        return made[:half], made[half:]

    @staticmethod
    def _with(row: list[int], place: _Place, put: list[int]) -> list[int]:
        return [*row[: place.first], *put, *row[place.last :]]

    def _guesses(
        self,
        rows: Sequence[list[int]],
        columns: Sequence[int],
        kept: Sequence[FloatArray | None] | None = None,
    ) -> Iterator[Any]:
        """Logits (vocabulary,) at one column of each row.

        Args:
            rows: token ids.
            columns: the place that is guessed, a row each.
            kept: what the word embedding there is multiplied by; None leaves it.
        """
        torch = need("torch", "hf")
        table = self._model.get_input_embeddings()
        device = table.weight.device
        longest = max((len(row) for row in rows), default=1)
        per_row = len(self._tokenizer) if self._head is not None else longest * len(self._tokenizer)
        n_rows = max(1, min(_ROWS, _NUMBERS // per_row))
        pad = self._tokenizer.pad_token_id or 0
        for start in range(0, len(rows), n_rows):
            part = rows[start : start + n_rows]
            ids = torch.full((len(part), longest), pad, dtype=torch.long)
            mask = torch.zeros(len(part), longest, dtype=torch.long)
            for i, row in enumerate(part):
                ids[i, : len(row)] = torch.tensor(row)
                mask[i, : len(row)] = 1
            where = torch.tensor(columns[start : start + n_rows], device=device)
            with torch.inference_mode():
                vectors = table(ids.to(device))
                for i in range(len(part)):
                    factor = None if kept is None else kept[start + i]
                    if factor is not None:
                        vectors[i, where[i]] *= torch.from_numpy(factor).to(device)
                inputs = {"inputs_embeds": vectors, "attention_mask": mask.to(device)}
                each = torch.arange(len(part), device=device)
                if self._head is None:
                    logits = self._model(**inputs).logits[each, where]
                else:
                    body = getattr(self._model, self._model.base_model_prefix)
                    logits = self._head(body(**inputs).last_hidden_state[each, where])
                yield from logits.float().cpu()

    def _longest(self) -> int:
        """Tokens that the model can read, those that frame the text included."""
        config = self._model.config
        most = int(getattr(config, "max_position_embeddings", 0) or 512)
        if "roberta" in config.model_type and config.pad_token_id is not None:
            most -= int(config.pad_token_id) + 1  # positions are counted from the padding token on
        said = self._tokenizer.model_max_length
        return max(8, min(most, said if said < 10**6 else most, 512))

    def _head_apart(self) -> Any:
        """The head that makes logits of states, where it can be run on some of them; else None."""
        torch = need("torch", "hf")
        body = getattr(self._model, self._model.base_model_prefix, None)
        head = getattr(self._model, "cls", None) or getattr(self._model, "lm_head", None)
        if body is None or head is None:
            return None
        ids = torch.tensor([[*self._frame[0], *self._words.ids[:4].tolist(), *self._frame[1]]])
        ids = ids.to(self._model.get_input_embeddings().weight.device)
        try:
            with torch.inference_mode():
                whole = self._model(input_ids=ids).logits
                apart = head(body(input_ids=ids).last_hidden_state)
        except (TypeError, AttributeError, RuntimeError):
            return None
        return head if torch.allclose(whole, apart, atol=1e-4, rtol=1e-4) else None


# --- T5 -------------------------------------------------------------------------------------------


class T5Filler:
    """A T5 that writes what could stand in hidden stretches, several words at a time.

    Args:
        name: what the user calls it.
        model: of transformers.
        tokenizer: its fast tokenizer, with names for hidden stretches (<extra_id_0> and so on).
        fingerprint: content hash of the model.
    """

    swaps_words = False

    def __init__(self, name: str, model: Any, tokenizer: Any, fingerprint: str) -> None:
        self.name = name
        self.about = f"T5 {name}"
        self.fingerprint = f"t5-{fingerprint}"
        self._model, self._tokenizer = model, tokenizer
        self._holes = [f"<extra_id_{i}>" for i in range(_SPANS + 1)]
        ids = tokenizer.convert_tokens_to_ids(self._holes)
        if any(i is None or i == tokenizer.unk_token_id for i in ids):
            raise ModelError(
                f"the filler {name} has no tokens for hidden stretches (<extra_id_0> and so on)",
                fix=_EXAMPLES,
            )
        self._hole_ids = ids

    def check(self, texts: Sequence[str]) -> None:
        """Its weights are all there, and what it writes is checked as it is written."""

    def swaps(
        self,
        text: str,  # noqa: ARG002
        *,
        top_k: int,  # noqa: ARG002
        dropout: float,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
        until: int | None = None,  # noqa: ARG002
    ) -> list[Swap]:
        """T5 writes stretches; it does not say how well single words fit."""
        raise ModelError(f"the filler {self.name} writes stretches of text, not single words")

    def refills(
        self,
        text: str,
        spans: Sequence[Span],
        *,
        ways: int,
        top_k: int,  # noqa: ARG002 (it draws from all)
        rng: np.random.Generator,
    ) -> list[tuple[Edit, ...]]:
        """Samples what it writes; what leaves a stretch out, empty or unchanged is drawn again.

        Each is tried four times in all, then there are fewer ways.
        """
        groups = [spans[at : at + _SPANS] for at in range(0, len(spans), _SPANS)]
        made: dict[tuple[Edit, ...], None] = {}
        for _ in range(_TRIES):
            wanted = ways - len(made)
            if not wanted:
                break
            written = [self._written(text, group, wanted, rng) for group in groups]
            for parts in zip(*written, strict=True):
                edits = tuple(edit for part in parts for edit in part or ())
                if edits and all(part is not None for part in parts):
                    made.setdefault(edits, None)
        return list(made)

    def _written(
        self, text: str, spans: Sequence[Span], n: int, rng: np.random.Generator
    ) -> list[list[Edit] | None]:
        """Fillings of some neighbouring stretches, n of them; None where one is not whole."""
        torch = need("torch", "hf")
        begin, end = max(0, spans[0][0] - _AROUND), min(len(text), spans[-1][1] + _AROUND)
        holes = [Edit(a - begin, b - begin, self._holes[i]) for i, (a, b) in enumerate(spans)]
        inputs = self._tokenizer(edited(text[begin:end], holes), return_tensors="pt", verbose=False)
        device = self._model.device
        longest = 8 + sum(4 + b - a for a, b in spans)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(int(rng.integers(2**63)))
            if device.type == "cuda":
                torch.cuda.manual_seed(int(rng.integers(2**63)))
            with torch.inference_mode(), quiet():
                out = self._model.generate(
                    input_ids=inputs["input_ids"].to(device),
                    attention_mask=inputs["attention_mask"].to(device),
                    do_sample=True,
                    top_k=0,
                    top_p=1.0,
                    num_return_sequences=n,
                    max_new_tokens=longest,
                    eos_token_id=[self._hole_ids[len(spans)], self._tokenizer.eos_token_id],
                    pad_token_id=self._tokenizer.pad_token_id,
                )
        return [self._parts(text, spans, row.tolist()) for row in out]

    def _parts(self, text: str, spans: Sequence[Span], ids: list[int]) -> list[Edit] | None:
        """What stands between the names of the stretches; None where one is missing or empty."""
        edits: list[Edit] = []
        at = 0
        for i, span in enumerate(spans):
            if self._hole_ids[i] not in ids[at:]:
                return None
            start = ids.index(self._hole_ids[i], at) + 1
            stop = start
            while stop < len(ids) and ids[stop] not in self._hole_ids:
                stop += 1
            put = self._tokenizer.decode(ids[start:stop], skip_special_tokens=True).strip()
            if not put:
                return None
            if put != text[slice(*span)]:
                edits.append(Edit(*span, put))
            at = stop
        return edits


def _best_first(swaps: Sequence[Swap]) -> list[Swap]:
    """Each edit once, the best first; ties by place, then by word."""
    best: dict[Edit, float] = {}
    for swap in swaps:
        best[swap.edit] = max(swap.score, best.get(swap.edit, -math.inf))
    ranked = sorted(best.items(), key=lambda one: (-one[1], one[0].start, one[0].put))
    return [Swap(edit, score) for edit, score in ranked]


def _blank(text: str, start: int, stop: int) -> int:
    """White space that a token begins with."""
    part = text[start:stop]
    return len(part) - len(part.lstrip())
