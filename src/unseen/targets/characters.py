"""Text as its characters: token ids for a model whose own tokens nobody tells us.

An endpoint takes messages, or one string, and gives a string. So that it fits where token ids go, a
character is an id, its code point, and each turn of a conversation begins with a mark for its role.
The marks are code points that Unicode keeps free for such uses, so that no text has them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unseen.errors import UsageError
from unseen.types import Tokenizer, Turn

MARKS = {"system": "\ufdd0", "user": "\ufdd1", "assistant": "\ufdd2"}
"""Role -> the mark that its turns begin with."""
_END = "\ufdd3"
_KEPT_FREE = frozenset((*MARKS.values(), _END))

LONGEST = 1_000_000
"""Characters of a text, at most: the endpoint says whether it fits."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ marks[message.role] }}{{ message.content }}{{ end }}{% endfor %}"
    "{% if add_generation_prompt %}{{ marks.assistant }}{% endif %}"
)


@dataclass(frozen=True)
class TextTokenizer:
    """Characters as token ids, and marks for turns.

    Attributes:
        chat: whether there are turns; else a conversation has to be written as one text.
    """

    chat: bool = True

    per_token = 4
    """Ids of one token of a usual model, about."""

    @property
    def fingerprint(self) -> str:
        return f"characters-{int(self.chat)}"

    @property
    def size(self) -> int:
        return 0x110000

    @property
    def bos_id(self) -> int | None:
        return None

    @property
    def eos_id(self) -> int | None:
        return None

    @property
    def chat_template(self) -> str | None:
        return CHAT_TEMPLATE if self.chat else None

    def encode(self, text: str) -> list[int]:
        """Code points."""
        return [ord(char) for char in text]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of code points, marks left out."""
        return "".join(char for char in map(chr, ids) if char not in _KEPT_FREE)

    def render(self, turns: tuple[Turn, ...], *, template: str, add_generation_prompt: bool) -> str:
        """The conversation, by a Jinja template: ours has marks, the user's makes one text of it."""
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        if any(char in _KEPT_FREE for turn in turns for char in turn.content):
            problem = "the text holds a code point that no text has (U+FDD0 to U+FDD3)"
            raise UsageError(problem)
        try:
            return _compiled(template).render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                marks=MARKS,
                end=_END,
                bos_token="",
                eos_token="",
            )
        except TemplateError as error:
            raise UsageError(f"the chat template refuses this conversation: {error}") from error


def turns_of(ids: Sequence[int]) -> list[Turn] | None:
    """The turns that ids were made of, the last of them perhaps just begun; None of a plain text."""
    roles = {ord(mark): role for role, mark in MARKS.items()}
    if not ids or ids[0] not in roles:
        return None
    said: list[tuple[str, list[int]]] = []
    for id_ in ids:
        if id_ in roles:
            said.append((roles[id_], []))
        elif id_ != ord(_END):
            said[-1][1].append(id_)
    return [Turn(role, "".join(map(chr, content))) for role, content in said]


def tokens_of(tokenizer: Tokenizer | None, n_ids: int) -> int:
    """About how many tokens of its model some ids of a tokenizer are: as many, if they are its own."""
    per_token: int = getattr(tokenizer, "per_token", 1)
    return -(-n_ids // per_token)


@functools.lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    # As transformers reads chat templates.
    environment = ImmutableSandboxedEnvironment(
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(template)


def _refuse(message: Any) -> NoReturn:
    raise TemplateError(str(message))
