"""How demonstrations, and what is asked after them, become one prompt."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from unseen.errors import ConfigError, UnknownNameError
from unseen.prompts.labels import Labels
from unseen.types import Turn

DEMOS, INPUT, OUTPUT = "{demos}", "{input}", "{output}"
_MARK = re.compile(r"\{\w+\}")


@dataclass(frozen=True)
class Example:
    """A labelled record: what is asked, and the answer that a demonstration gives.

    Attributes:
        id: of the record in the pool.
        text: what is asked.
        label: the answer.
    """

    id: str
    text: str
    label: str


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt with a place for demonstrations, and how what comes after them is written.

    A text prompt is `before` + demonstrations + `after` + what the user asks. In a chat, all that comes
    before what the user asks is the system's message, or, with `as_turns`, each demonstration is a turn of
    the user and one of the assistant, and `after` begins the user's last message: a system's message
    between turns is more than many models know.

    Attributes:
        name: what the user calls it.
        before: what stands before the demonstrations, with the break that follows.
        question: how something is asked, with "{input}": it ends where the answer begins.
        demonstration: how an example is shown, with "{input}" and "{output}", and the break that
            follows.
        after: what stands between the demonstrations and what is asked, with the break that follows.
        labels: the words that answer; None where answers are free text.
        chat: whether it is sent as messages.
        as_turns: whether demonstrations are turns of their own.
    """

    name: str
    before: str
    question: str
    demonstration: str
    after: str = ""
    labels: Labels | None = None
    chat: bool = False
    as_turns: bool = False

    def __post_init__(self) -> None:
        if INPUT not in self.question:
            raise ConfigError(
                f"the template {self.name} has no place for what is asked",
                fix=f"write {INPUT} where the user's text goes",
            )
        if any(DEMOS in part for part in (self.before, self.question, self.after)):
            raise ConfigError(
                f"the template {self.name} has {DEMOS} where no demonstrations go",
                fix=f"a text file has {DEMOS} once, before {INPUT}; a YAML file has it in no field",
            )
        if OUTPUT in self.question:
            raise ConfigError(
                f"the question of the template {self.name} has {OUTPUT}, where nothing is answered yet",
                fix=f"end it where the answer begins: a demonstration has the label there by itself, or, "
                f"in a YAML file, where its field demonstration has {OUTPUT}",
            )
        if self.as_turns and not self.chat:
            raise ConfigError(
                f"the template {self.name} has demonstrations as turns, and is no chat",
                fix="chat: true",
            )
        lacking = [mark for mark in (INPUT, OUTPUT) if mark not in self.demonstration]
        if lacking:
            raise ConfigError(
                f"the demonstration of the template {self.name} has no {lacking[0]}",
                fix=f"write it with {INPUT} and {OUTPUT}, or leave it out",
            )

    def shown(self, example: Example) -> str:
        """One demonstration, with the break that follows it."""
        return _filled(self.demonstration, example.text, example.label)

    def asked(self, text: str) -> str:
        """A question, up to where its answer begins."""
        return _filled(self.question, text)

    def begun(self, text: str) -> str:
        """The beginning of a question that breaks off inside the text."""
        return self.question.partition(INPUT)[0] + text

    def answered(self, label: str) -> str:
        """An answer as it follows what is asked, with what a demonstration has between the two."""
        if self.chat:
            return label
        before = self.demonstration.partition(OUTPUT)[0]
        between = before.removeprefix(self.question) if before.startswith(self.question) else " "
        return between + label

    def hidden(self, demos: Sequence[Example]) -> str:
        """Everything before what is asked, as one text."""
        return self.before + "".join(map(self.shown, demos)) + self.after

    def turns(self, demos: Sequence[Example], said: str) -> tuple[Turn, ...]:
        """The messages of a chat that ends with what the user says."""
        if not self.as_turns:
            system = self.hidden(demos).rstrip()
            return (*_system(system), Turn("user", said))
        turns = list(_system(self.before.rstrip()))
        for demo in demos:
            turns += [Turn("user", self.asked(demo.text)), Turn("assistant", demo.label)]
        return (*turns, Turn("user", self.after + said))

    @property
    def unfilled(self) -> tuple[str, ...]:
        """What looks like a place for something, and is sent as it stands: "{name}"."""
        parts = (self.before, self.question, self.demonstration, self.after)
        found = dict.fromkeys(mark for part in parts for mark in _MARK.findall(part))
        return tuple(mark for mark in found if mark not in (INPUT, OUTPUT))

    def until(self, answer: str) -> str:
        """An answer up to where the next demonstration would begin."""
        stop = self.demonstration.partition(OUTPUT)[2] or "\n"
        return answer.partition(stop)[0]


def _system(text: str) -> tuple[Turn, ...]:
    return (Turn("system", text),) if text else ()


def _filled(pattern: str, text: str, label: str = "") -> str:
    """The pattern with both filled in at once: a text may hold the marks itself."""
    parts = [part.split(OUTPUT) for part in pattern.split(INPUT)]
    return text.join(label.join(part) for part in parts)


# --- the papers' -----------------------------------------------------------------------------------

_TREC = ("Number", "Location", "Person", "Description", "Entity", "Abbreviation")
_AG_NEWS = ("World", "Sports", "Business", "Technology")
_DBPEDIA = (
    "Company", "School", "Artist", "Athlete", "Politician", "Transportation", "Building", "Nature",
    "Village", "Animal", "Plant", "Album", "Film", "Book",
)  # fmt: skip


def _of_paper(name: str, instruction: str, cue: str, answer: str, labels: Labels) -> PromptTemplate:
    return PromptTemplate(
        name,
        before=f"{instruction}\n\n" if instruction else "",
        question=f"{cue}: {INPUT}\n{answer}:",
        demonstration=f"{cue}: {INPUT}\n{answer}: {OUTPUT}\n\n",
        labels=labels,
    )


_TREC_ASKS = (
    "Classify the questions based on whether their answer type is a Number, Location, Person, "
    "Description, Entity, or Abbreviation."
)
_AG_NEWS_ASKS = (
    "Classify the news articles into the categories of World, Sports, Business, and Technology."
)
_DBPEDIA_ASKS = (
    "Classify the documents based on whether they are about a Company, School, Artist, Athlete, "
    "Politician, Transportation, Building, Nature, Village, Animal, Plant, Album, Film, or Book."
)
_SHORT = {"Abbreviation": ("Ab",)}
PAPERS = {
    template.name: template
    for template in (
        _of_paper("trec", _TREC_ASKS, "Question", "Answer Type", Labels.of(_TREC, _SHORT)),
        _of_paper(
            "trec-paper", _TREC_ASKS, "Question", "Answer Type",
            Labels.of((*_TREC[:-1], "Ab"), {"Ab": ("Abbreviation",)}),
        ),
        _of_paper(
            "agnews", _AG_NEWS_ASKS, "Article", "Answer",
            Labels.of(_AG_NEWS, {"Technology": ("Science",)}),
        ),
        _of_paper(
            "agnews-paper", "", "Article", "Answer",
            Labels.of(_AG_NEWS, {"Technology": ("Science",)}),
        ),
        _of_paper("dbpedia", _DBPEDIA_ASKS, "Article", "Answer", Labels.of(_DBPEDIA)),
        _of_paper(
            "dbpedia-paper", _DBPEDIA_ASKS, "Article", "Answer",
            Labels.of(
                tuple({"Athlete": "Ath", "Politician": "Polit"}.get(word, word) for word in _DBPEDIA),
                {"Ath": ("Athlete",), "Polit": ("Politician",)},
            ),
        ),
    )
}  # fmt: skip
"""The templates of Zhao et al. 2021, and, as "-paper", what Wen et al. 2024 changed of them."""


def find_template(name: str) -> PromptTemplate:
    """One of the papers' templates by its name, or the one in a file.

    Raises:
        ConfigError: where it is neither, or the file is no template.
    """
    if name in PAPERS:
        return PAPERS[name]
    path = Path(name).expanduser()
    if path.is_file():
        return read_template(path)
    if path.is_dir() or path.suffix or len(path.parts) > 1:
        what = "is a folder" if path.is_dir() else "is not there"
        raise ConfigError(
            f"the template {name} {what}",
            fix=f"name a text file with {DEMOS} and {INPUT}, a YAML file of its parts, or one of "
            f"{', '.join(PAPERS)}",
        )
    raise UnknownNameError("template", name, PAPERS)


def read_template(path: Path) -> PromptTemplate:
    """A template of the user's.

    A text file holds the prompt with "{demos}" and, after it, how something is asked, with "{input}";
    a demonstration then looks like a question with its answer. A YAML file says the same by fields
    (`before`, `question`, `demonstration`, `chat`, `as_turns`, `labels`, `synonyms`).

    Raises:
        ConfigError: where it cannot be read, or a place is missing.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the template {path} is no text in UTF-8 (byte {error.start + 1})",
            fix="save it as UTF-8",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the template {path}: {error.strerror}", fix="name a file that can be read"
        ) from error
    if path.suffix in (".yaml", ".yml"):
        return _from_fields(path, content)
    before, mark, question = content.partition(DEMOS)
    if not mark:
        raise ConfigError(
            f"the template {path} has no place for demonstrations",
            fix=f"write {DEMOS} where they stand, and after it how something is asked, with {INPUT}",
        )
    question = question.strip("\n").rstrip()  # a space before the answer is the answer's own
    return PromptTemplate(path.name, before, question, f"{question} {OUTPUT}\n\n")


_FIELDS = ("before", "question", "demonstration", "after", "chat", "as_turns", "labels", "synonyms")


def _from_fields(path: Path, content: str) -> PromptTemplate:
    try:
        given = yaml.safe_load(content)
    except yaml.YAMLError as error:
        mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = "" if mark is None else f" line {mark.line + 1}"
        raise ConfigError(
            f"the template {path}{where} is no YAML{f': {why}' if why else ''}",
            fix="put texts that hold : or { or # in quotes, or write them after | on lines of their own",
        ) from None  # what YAML says quotes the file
    if not isinstance(given, dict):
        raise ConfigError(f"the template {path} holds no fields", fix=f"{', '.join(_FIELDS)}")
    for name in given:
        if name not in _FIELDS:
            raise UnknownNameError("field of a template", str(name), _FIELDS)
    if "question" not in given:
        raise ConfigError(f"the template {path} does not say how something is asked: question")
    for name in ("chat", "as_turns"):
        if not isinstance(given.get(name, False), bool):
            raise _wrong(path, name, f"{name}: true, or {name}: false")
    question = _text(path, "question", given["question"]).rstrip()
    shown = given.get("demonstration", f"{question} {OUTPUT}\n\n")
    return PromptTemplate(
        path.name,
        _text(path, "before", given.get("before", "")),
        question,
        _text(path, "demonstration", shown),
        _text(path, "after", given.get("after", "")),
        _labels_of(path, given),
        chat=given.get("chat", False),
        as_turns=given.get("as_turns", False),
    )


def _labels_of(path: Path, given: dict[str, Any]) -> Labels | None:
    if given.get("labels") is None:
        if given.get("synonyms") is not None:
            raise _wrong(path, "synonyms", "labels: [First, Second], which they are spellings of")
        return None
    synonyms = given.get("synonyms") or {}
    if not isinstance(given["labels"], list):
        raise _wrong(path, "labels", "labels: [First, Second]")
    if not (isinstance(synonyms, dict) and all(isinstance(v, list) for v in synonyms.values())):
        raise _wrong(path, "synonyms", "synonyms: {First: [1st, one]}")
    return Labels.of(
        [_text(path, "labels", label) for label in given["labels"]],
        {
            _text(path, "synonyms", label): [_text(path, "synonyms", one) for one in others]
            for label, others in synonyms.items()
        },
    )


def _text(path: Path, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _wrong(path, name, "write text in quotes: YAML reads yes and no as true and false")
    return str(value)


def _wrong(path: Path, name: str, fix: str) -> ConfigError:
    return ConfigError(f"cannot use the field {name} of the template {path}", fix=fix)


def as_chat(template: PromptTemplate, *, as_turns: bool = False) -> PromptTemplate:
    """The same template, sent as messages."""
    return dataclasses.replace(template, chat=True, as_turns=as_turns)
