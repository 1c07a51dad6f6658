"""What a signal is, and what attacks get to see of it.

A signal asks a model about records, or reads their text. It never sees a label of an audited
record. Its fields say exactly what is measured and are its identity: equal signals are measured
once, however many attacks want them.

Shapes:

* `LikelihoodSignal`: `ask` turns a record into requests, `observe` turns the answers into a value,
  or `read` does, where the record is needed too. All requests of all signals of a run go to the
  engine together.
* `ContinuationSignal`: `prompts` turns a record into prompts, `observe` turns what a model writes
  after them into a value. Text is written first, for likelihoods may be asked of it.
* `TextSignal`: `measure` reads the text of the records; no model is asked.
* `InsideSignal`: `passages` turns a record into token ids, `see` turns what a look inside the model
  shows of them into a value.
* `ScoreSignal`: `gather` takes what other attacks have said; nothing is measured.
* `LentSignal`: what another audit has learned; nothing is measured.
* `PopulationSignal`: `gather` takes what was measured of records that are set aside.

A likelihood signal of the role "shadow" is measured of every shadow model; `combine` makes one value
of theirs.

A value is a frozen dataclass whose fields are arrays, numbers or None, so that it can be kept.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from unseen.errors import UnscorableError
from unseen.targets.access import Access
from unseen.targets.looks import Look, Seen, Vectors
from unseen.types import (
    BoolArray,
    Encoded,
    Passage,
    Prompt,
    Record,
    Request,
    Scores,
    Tokenizer,
    TokenStats,
    Turn,
)

if TYPE_CHECKING:
    from unseen.signals.corpus import Corpus
    from unseen.signals.neighbourhood import Neighbourhood
    from unseen.signals.pool import Pool
    from unseen.targets.fillers import Filler

TARGET = "target"
REFERENCE = "reference"
CONTROL = "control"
SHADOW = "shadow"
SURROGATE = "surrogate"
GENERATOR = "generator"

Join = Literal["turn", "user", "plain"]
JOINS: tuple[Join, ...] = ("turn", "user", "plain")


class Encoder(Protocol):
    """Makes token ids of a record for one model: the template, the loss mask and the limits."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model that is asked."""

    @property
    def max_length(self) -> int:
        """The most tokens of a record, with everything before it."""

    def encode(
        self, record: Record, *, before: Sequence[Record] = (), join: Join = "turn"
    ) -> Encoded:
        """Token ids of the record, with other records shown before it.

        `join` says where those stand: in earlier turns, in the record's own first user turn, or,
        without any template, before it as plain text.

        Raises:
            UnscorableError: with the reason, where the record cannot be measured.
        """

    def scored_text(self, record: Record) -> str:
        """The text whose tokens `encode` marks as scored."""

    def scored_turns(self, record: Record) -> list[int]:
        """Places of the turns that loss is computed on.

        Raises:
            UnscorableError: where there is none.
        """

    def prompt(self, turns: Sequence[Turn], begun: str = "") -> tuple[int, ...]:
        """Token ids that ask for what comes next: the assistant's turn, or more of a document.

        Args:
            turns: what was said before; none before a document.
            begun: how the answer, or the document, begins.

        Raises:
            UnscorableError: where there is no such prompt, or it leaves no room for an answer.
        """


class Behind(Protocol):
    """What an adversary can send to a model that stands behind a hidden prompt, and what its task is."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that answer, as demonstrations show them; none where answers are free text."""

    @property
    def is_chat(self) -> bool:
        """Whether it is talked to in messages; else it goes on with a text."""

    def prompt(self, id_: str, said: str) -> tuple[int, ...]:
        """Token ids of what the model reads where this is sent, behind the prompt of one record.

        Raises:
            UnscorableError: where it does not fit into the context.
        """

    def asked(self, text: str) -> str:
        """A question of the task, up to where its answer begins."""

    def begun(self, text: str) -> str:
        """The beginning of a question that breaks off inside the text."""

    def answered(self, label: str) -> str:
        """A label as it follows a question, with what stands between the two."""

    def shown(self, text: str, label: str) -> str:
        """A demonstration, as the prompt shows its own, with the break that follows."""

    def until(self, answer: str) -> str:
        """An answer, up to where the next demonstration would begin."""

    def parse(self, answer: str) -> str | None:
        """The label that an answer gives, or None."""

    def wrong(self, id_: str) -> tuple[str, ...]:
        """Labels that are not the record's, in an order drawn for its trial."""


@dataclass(frozen=True)
class Shown:
    """What signals may show to models, or compare with, whoever is asked.

    Attributes:
        known_members: records that are not judged, for prefixes.
        known_nonmembers: the same of the other side; the population too.
        pool: demonstrations of others.
        corpus: texts to count tokens in.
        fillers: name -> a model that puts other words into texts.
        probes: record id -> responses that the user gives to probe with.
        directions: that the user gives to project states onto.
        paraphrases: record id -> its prompt in other words.
        behind: role -> the hidden prompts that its model stands behind.
    """

    known_members: tuple[Record, ...] = ()
    known_nonmembers: tuple[Record, ...] = ()
    pool: Pool | None = None
    corpus: Corpus | None = None
    fillers: Mapping[str, Filler] = field(default_factory=dict)
    probes: Mapping[str, Sequence[str]] | None = None
    directions: Vectors | None = None
    paraphrases: Mapping[str, Sequence[str]] | None = None
    behind: Mapping[str, Behind] = field(default_factory=dict)


NOTHING_SHOWN = Shown()


@dataclass(frozen=True)
class Materials:
    """What a signal may use besides the record itself.

    Attributes:
        encoder: how records become token ids of the model that is asked.
        known_members: records set aside, not judged, known to be members.
        known_nonmembers: records set aside, not judged, known to be non-members.
        of_target: the target's encoder, for signals that compare another model with it.
        pool: demonstrations of others, for signals that show some.
        corpus: texts to count tokens in.
        neighbourhood: makes neighbours of texts, for signals that compare a text with some.
        written: continuation signal -> record id -> its value, or why there is none, for signals
            that are `built_on` it.
        probes: record id -> responses that the user gives to probe with.
        directions: that the user gives to project states onto.
        paraphrases: record id -> its prompt in other words.
        behind: the hidden prompt that the model stands behind.
        foreseeing: whether the questions are for a plan: nothing has been written.
    """

    encoder: Encoder
    known_members: tuple[Record, ...] = ()
    known_nonmembers: tuple[Record, ...] = ()
    of_target: Encoder | None = None
    pool: Pool | None = None
    corpus: Corpus | None = None
    neighbourhood: Neighbourhood | None = None
    written: Mapping[Signal, Mapping[str, Any]] = field(default_factory=dict)
    probes: Mapping[str, Sequence[str]] | None = None
    directions: Vectors | None = None
    paraphrases: Mapping[str, Sequence[str]] | None = None
    behind: Behind | None = None
    foreseeing: bool = False

    @classmethod
    def of(cls, encoder: Encoder, shown: Shown, role: str, **more: Any) -> Materials:
        """What is shown, as the model in one role gets to see it.

        Args:
            encoder: how records become its token ids.
            shown: what is shown to all.
            role: of the model.
            **more: further fields.
        """
        names = {one.name for one in dataclasses.fields(cls)} - {"behind"}
        same = {name: value for name, value in vars(shown).items() if name in names}
        return cls(encoder, behind=shown.behind.get(role), **same, **more)


@dataclass(frozen=True)
class Ask:
    """The questions about one record; `keep[i]` says which continuation tokens of i count."""

    requests: tuple[Request, ...]
    keep: tuple[BoolArray, ...]

    @property
    def scored(self) -> tuple[tuple[int, ...], ...]:
        """The ids of the counted tokens, for each request."""
        return tuple(
            tuple(np.array(request.continuation)[keep].tolist())
            for request, keep in zip(self.requests, self.keep, strict=True)
        )

    def then(self, more: Ask) -> Ask:
        """These questions, and more after them."""
        return Ask(self.requests + more.requests, self.keep + more.keep)

    def read(self, answers: Sequence[TokenStats]) -> list[TokenStats]:
        """The counted tokens of each answer."""
        return [answer.at(keep) for answer, keep in zip(answers, self.keep, strict=True)]


@runtime_checkable
class LikelihoodSignal(Protocol):
    """Asks a model how likely tokens are; it is an `ObservingSignal` or a `ReadingSignal` too."""

    gives: ClassVar[type]
    """The class of its values."""

    @property
    def of(self) -> str:
        """The role of the model asked: "target", "reference", "control" or "shadow"."""

    def ask(self, record: Record, materials: Materials) -> Ask:
        """The requests that this record needs.

        Raises:
            UnscorableError: with the reason, where the record cannot be measured.
        """


@runtime_checkable
class ObservingSignal(LikelihoodSignal, Protocol):
    """Needs nothing but the answers."""

    def observe(self, answers: Sequence[TokenStats]) -> Any:
        """The value of one record, from the counted tokens of its answers."""


@runtime_checkable
class ReadingSignal(LikelihoodSignal, Protocol):
    """Needs the record and its tokens beside the answers."""

    def read(
        self, record: Record, materials: Materials, ask: Ask, answers: Sequence[TokenStats]
    ) -> Any:
        """The value of one record, from the counted tokens of its answers."""


@runtime_checkable
class FollowingSignal(ObservingSignal, Protocol):
    """Asks once more, after what was answered; `observe` gets the answers of both rounds."""

    def follow(
        self, record: Record, materials: Materials, ask: Ask, answers: Sequence[TokenStats]
    ) -> Ask:
        """The requests that the counted tokens of the answers lead to.

        Raises:
            UnscorableError: with the reason, where they lead to none.
        """

    def foreseen(self, record: Record, materials: Materials) -> Ask:
        """Requests like those of `follow` in number and length, for a plan.

        Raises:
            UnscorableError: with the reason, where there will be none.
        """


@runtime_checkable
class AdaptiveSignal(LikelihoodSignal, Protocol):
    """Asks on after what was answered, until it knows enough.

    `observe`, or `read`, gets the answers of all rounds.
    """

    def more(self, record: Record, materials: Materials, answers: Sequence[TokenStats]) -> Ask:
        """The requests that the counted tokens of all answers lead to; none where they are enough.

        Asked until there are none, so the signal itself bounds them.
        """

    def foreseen(self, record: Record, materials: Materials) -> Ask:
        """The most that `more` may ask in all rounds, for a plan."""


@dataclass(frozen=True)
class OfShadow:
    """What one shadow model says of a record.

    Attributes:
        inside: whether the record is in its training data.
        value: what was observed.
    """

    inside: bool
    value: Any


@runtime_checkable
class ShadowSignal(LikelihoodSignal, Protocol):
    """Can be asked of several models: `combine` makes one value of what they say."""

    def combine(self, parts: Mapping[int, OfShadow]) -> Any:
        """The value of one record, from the shadows by their number; at least one."""


@runtime_checkable
class ContinuationSignal(Protocol):
    """Lets a model write."""

    gives: ClassVar[type]
    """The class of its values."""
    private: ClassVar[bool]
    """True where the value would give text away: it is used, and never kept."""

    @property
    def of(self) -> str:
        """The role of the model asked."""

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """What is to be continued for this record.

        Raises:
            UnscorableError: with the reason, where the record cannot be measured.
        """

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Any:
        """The value of one record, from all that was written, in the order of the prompts.

        Raises:
            UnscorableError: with the reason, where there is none.
        """


@runtime_checkable
class OngoingSignal(ContinuationSignal, Protocol):
    """Lets a model write on, after what it has written, until that is enough."""

    def more(
        self, record: Record, materials: Materials, texts: Sequence[str]
    ) -> tuple[Prompt, ...]:
        """Further prompts, after what was written so far; none where that is enough.

        Asked until there are none, so the signal itself bounds them.
        """


@runtime_checkable
class ForeseeingSignal(OngoingSignal, Protocol):
    """Knows what it may ask after the first prompts."""

    def foreseen(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The most that `more` may ask in all rounds, for a plan."""


@runtime_checkable
class PopulationSignal(Protocol):
    """Is made of what was measured of non-members that are set aside: one value for all records."""

    gives: ClassVar[type]
    """The class of its values."""

    @property
    def of(self) -> str:
        """The role of the model asked."""

    @property
    def size(self) -> int:
        """How many non-members, at most."""

    @property
    def each(self) -> ShadowSignal:
        """What is measured of each of them."""

    def gather(self, population: Sequence[Any]) -> Any:
        """The value, from those of the population; None where one could not be measured.

        Raises:
            UnscorableError: with the reason, where there is none.
        """


@runtime_checkable
class StepSignal(ObservingSignal, Protocol):
    """Asks the same again after a real optimizer step; `observe` gets the answers before and after.

    It needs a `WhiteBoxTarget`.
    """

    @property
    def learning_rate(self) -> float:
        """Of the step."""

    def batches(self, records: Sequence[Record]) -> list[list[Record]]:
        """The records that take a step together."""


@runtime_checkable
class InsideSignal(Protocol):
    """Looks at gradients and states inside a model: it needs an `InsideTarget`."""

    gives: ClassVar[type]
    """The class of its values."""
    private: ClassVar[bool]
    """True where the value would give text away: it is used, and never kept."""

    @property
    def of(self) -> str:
        """The role of the model that is looked into."""

    def look(self, materials: Materials) -> Look:
        """What is measured of each passage."""

    def passages(self, record: Record, materials: Materials) -> tuple[Passage, ...]:
        """What is looked at for this record, at least one.

        Raises:
            UnscorableError: with the reason, where the record cannot be measured.
        """

    def see(self, seen: Sequence[Seen]) -> Any:
        """The value of one record, from what was seen of its passages, in their order.

        Raises:
            UnscorableError: with the reason, where there is none.
        """


@runtime_checkable
class TextSignal(Protocol):
    """Reads the text of records; asks no model."""

    gives: ClassVar[type]
    """The class of its values."""
    private: ClassVar[bool]
    """True where the value would give text away: it is used, and never kept."""

    @property
    def of(self) -> str:
        """The role of the model whose scored text is read."""

    def measure(self, records: Sequence[Record], materials: Materials) -> list[Any]:
        """A value, or an `UnscorableError`, for each record."""


@runtime_checkable
class ScoreSignal(Protocol):
    """Is made of the scores of other attacks, once they are there."""

    gives: ClassVar[type]
    """The class of its values."""

    @property
    def of(self) -> str:
        """The role of the model that was attacked."""

    @property
    def reference(self) -> bool:
        """Whether scores that compare the target with a reference count."""

    def gather(self, scores: Mapping[str, Scores]) -> dict[str, Any]:
        """Record id -> value, for the records that any attack has scored.

        Args:
            scores: attack -> its scores; their order does not matter.
        """


@runtime_checkable
class LentSignal(Protocol):
    """Is a model that another audit has learned: the same for all records, and never measured."""

    gives: ClassVar[type]
    """The class of its values."""
    lent: ClassVar[bool]
    """True: it is borrowed."""

    @property
    def of(self) -> str:
        """The role of the model that is attacked."""


Signal = (
    LikelihoodSignal
    | ContinuationSignal
    | PopulationSignal
    | InsideSignal
    | TextSignal
    | ScoreSignal
    | LentSignal
)


def key(signal: Signal) -> str:
    """The signal's identity as text, for file names and records of runs.

    Two signals of one class with equal fields have one key, whatever made them.
    """
    fields = dataclasses.asdict(signal)  # type: ignore[call-overload]
    return f"{type(signal).__name__}{json.dumps(fields, sort_keys=True)}"


def asked_of(signal: Signal, role: str) -> Signal:
    """The same measurement, of the model in another role."""
    return dataclasses.replace(signal, of=role)  # type: ignore[type-var]


def attacked(signal: Signal) -> str:
    """The role of the model that a measurement shows something of.

    It is the model asked, but where another model is asked about what it has written: such a signal
    names the model that writes by its field `writer`.
    """
    return str(getattr(signal, "writer", signal.of))


def as_control(signal: Signal, role: str = REFERENCE) -> Signal:
    """What stands for the measurement where the model in `role` is attacked instead of the target.

    What shadows say does not depend on whom they are compared with, nor does what the reference says.
    """
    if attacked(signal) != TARGET:
        return signal
    if signal.of != TARGET:
        return dataclasses.replace(signal, writer=role)  # type: ignore[type-var]
    return asked_of(signal, role)


def access_needed(signal: Signal) -> Access | None:
    """The rung that a model must give to be asked; None where no model is.

    Likelihoods need LOGPROB, unless the signal says otherwise by a class variable `access`.
    """
    if isinstance(signal, ContinuationSignal):
        return Access.TEXT
    if isinstance(signal, InsideSignal):
        return Access.WHITE_BOX
    if isinstance(signal, LikelihoodSignal | PopulationSignal):
        return Access(getattr(signal, "access", Access.LOGPROB))
    return None


def built_on(signals: Iterable[Signal]) -> list[Signal]:
    """The signals, and before them those whose values their questions are made from.

    A signal that is made so says from what by a property `built_on`.
    """
    wanted: list[Signal] = []
    for signal in signals:
        wanted += [*getattr(signal, "built_on", ()), signal]
    return list(dict.fromkeys(wanted))


def population_wanted(signals: Iterable[Signal]) -> int:
    """How many non-members to set aside as a population, where there is room for them."""
    sizes = (signal.size for signal in signals if isinstance(signal, PopulationSignal))
    return max(sizes, default=0)


def known_needed(signals: Iterable[Signal]) -> tuple[int, int]:
    """How many members and non-members have to be set aside for some signals.

    A signal that shows known records before the judged ones says so by a property `known_needed`.
    """
    needs = [getattr(signal, "known_needed", (0, 0)) for signal in signals]
    return max((m for m, _ in needs), default=0), max((n for _, n in needs), default=0)


def pool_needed(signals: Iterable[Signal]) -> bool:
    """Whether any of the signals shows demonstrations from a reference pool.

    Such a signal says so by a class variable `needs_pool`.
    """
    return any(getattr(signal, "needs_pool", False) for signal in signals)


def needs_adapter(signals: Iterable[Signal]) -> bool:
    """Whether any of the signals looks at an adapter's weights alone: its field `weights`."""
    return any(getattr(signal, "weights", None) == "adapter" for signal in signals)


def corpus_needed(signals: Iterable[Signal]) -> bool:
    """Whether any of the signals counts tokens in a corpus: its class variable `needs_corpus`."""
    return any(getattr(signal, "needs_corpus", False) for signal in signals)


def helpers_needed(signals: Iterable[Signal]) -> set[str]:
    """Roles of the attacker's own models that some signals ask: a surrogate, a generator."""
    return {signal.of for signal in built_on(signals)} & {SURROGATE, GENERATOR}


def probes_needed(signals: Iterable[Signal]) -> bool:
    """Whether any of the signals shows probes that the user gives.

    Such a signal says so by a property `needs_probes`.
    """
    return any(getattr(signal, "needs_probes", False) for signal in signals)


def paraphrases_needed(signals: Iterable[Signal]) -> bool:
    """Whether any of the signals looks at paraphrases of prompts that the user gives.

    Such a signal says so by a property `needs_paraphrases`.
    """
    return any(getattr(signal, "needs_paraphrases", False) for signal in signals)


def directions_needed(signals: Iterable[Signal]) -> bool:
    """Whether any of the signals projects states onto directions that the user gives.

    Such a signal says so by a property `needs_directions`.
    """
    return any(getattr(signal, "needs_directions", False) for signal in signals)


def one_request(encoded: Encoded) -> Ask:
    """The request whose continuation spans all scored tokens of an encoded record.

    Raises:
        UnscorableError: where no token is scored.
    """
    places = np.flatnonzero(encoded.scored)
    if not len(places):
        reason = "no token to score"
        raise UnscorableError(reason)
    first, last = int(places[0]), int(places[-1])
    request = Request(encoded.ids[:first], encoded.ids[first : last + 1])
    return Ask((request,), (encoded.scored[first : last + 1],))


@dataclass(frozen=True)
class Observations:
    """What was measured: signal -> record id -> value, and why some values are missing.

    Attributes:
        ids: the records, in a fixed order.
        values: signal -> id -> value.
        missing: signal -> id -> reason.
    """

    ids: tuple[str, ...]
    values: Mapping[Signal, Mapping[str, Any]]
    missing: Mapping[Signal, Mapping[str, str]] = field(default_factory=dict)

    def get(self, signal: Signal, id_: str) -> Any:
        """The value of one record.

        Raises:
            UnscorableError: with the reason, where there is none.
        """
        try:
            return self.values[signal][id_]
        except KeyError:
            pass
        reason = self.missing.get(signal, {}).get(id_, "this signal was not measured")
        raise UnscorableError(reason)

    def select(self, ids: Sequence[str]) -> Observations:
        """The same measurements, for some of the records."""
        return dataclasses.replace(self, ids=tuple(ids))

    def seen_as_target(self, role: str) -> Observations:
        """What an attacker would see whose target is the model in `role`.

        For the control: the same attacks, with the same shadows and surrogate, on the model before
        fine-tuning, or on a control model, which is compared with the same reference.
        """
        beside = {SHADOW, SURROGATE, REFERENCE} - {role}

        def moved(by_signal: Mapping[Signal, Mapping[str, Any]]) -> dict[Signal, Mapping[str, Any]]:
            kept = {
                signal: values for signal, values in by_signal.items() if attacked(signal) in beside
            }
            return kept | {
                _as_target(signal): values
                for signal, values in by_signal.items()
                if attacked(signal) == role
            }

        return Observations(self.ids, moved(self.values), moved(self.missing))


def _as_target(signal: Signal) -> Signal:
    """The measurement, as one of the target."""
    if attacked(signal) != signal.of:
        return dataclasses.replace(signal, writer=TARGET)  # type: ignore[type-var]
    return asked_of(signal, TARGET)
