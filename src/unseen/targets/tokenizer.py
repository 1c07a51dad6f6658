"""Tokenizers of transformers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unseen.errors import UsageError
from unseen.types import Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class HFTokenizer:
    """A transformers tokenizer as `unseen` needs it: nothing is added, nothing is warned about."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        empty = list(tokenizer("")["input_ids"])
        begins = bool(empty) and empty[0] == tokenizer.bos_token_id
        self.bos_id: int | None = tokenizer.bos_token_id if begins else None
        self.eos_id: int | None = tokenizer.eos_token_id
        template: Any = tokenizer.chat_template
        if isinstance(template, dict):  # several, by name
            template = template.get("default")
        self.chat_template: str | None = template if isinstance(template, str) else None
        self.size = len(tokenizer)
        self.fingerprint = self._content_hash()

    def encode(self, text: str) -> list[int]:
        """Token ids of the text alone."""
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, special tokens left out."""
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def render(self, turns: tuple[Turn, ...], *, template: str, add_generation_prompt: bool) -> str:
        """The conversation, by the chat template engine of transformers."""
        from jinja2 import TemplateError

        if not turns:
            problem = "the chat template needs a turn before the response"
            raise UsageError(problem)
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    chat_template=template,
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                )
            )
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise UsageError(f"the chat template refuses this conversation: {error}") from error

    def _content_hash(self) -> str:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        about = (
            backend.to_str()
            if backend is not None
            else json.dumps(self._tokenizer.get_vocab(), sort_keys=True)
        )
        return hashlib.sha256(about.encode()).hexdigest()[:32]
