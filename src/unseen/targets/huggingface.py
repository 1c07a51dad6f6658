"""Local models through transformers: folders, hub names, PEFT adapters, GGUF files.

What makes it fast and right: rows are padded on one side and masked, the LM head runs on scored
positions only and in chunks, the statistics are computed in float32 whatever the model's
precision, and a prefix that many rows share is read once. Two of these shortcuts depend on the
architecture, so each is compared with the plain forward pass of the model at hand and left out
where it differs; nothing is assumed from a model's name.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from unseen.errors import ModelError, OutOfMemoryError, TargetError, need
from unseen.targets.access import Access
from unseen.targets.continuing import Continuing, Inputs
from unseen.targets.ending import Ending
from unseen.targets.files import Source, fingerprint_of, locate, no_base
from unseen.targets.loading import load
from unseen.targets.moments import moments, split
from unseen.targets.prefixes import Prefixes
from unseen.targets.quiet import quiet
from unseen.targets.sampling import Drawer, chance
from unseen.targets.tokenizer import HFTokenizer
from unseen.types import (
    GREEDY,
    Batch,
    Encoded,
    FloatArray,
    IntArray,
    Passage,
    Request,
    Sampling,
    TokenStats,
)

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from unseen.targets.inside.model import Opened
    from unseen.targets.inside.steps import StepCheck
    from unseen.targets.looks import Look, Seen, StepLook, Weights

T = TypeVar("T")
Ids = tuple[int, ...]
Padding = Literal["right", "left"]
Processor = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""What the next token is chosen from: token ids and scores to scores."""

# Positions that the head runs on together: for fewer, its weights are read from memory more often.
_HEAD_ROWS = {"cpu": 256, "cuda": 512}
# The statistics take several passes over logits, on a CPU over as many as stay in its caches.
_CACHE_BYTES = {"cpu": 2**20}
# On a CPU larger batches are no faster, and hold more padding.
_BATCH_TOKENS = {"cpu": 512, "cuda": 16_384}
# What has been read of prompts is kept within this, or within a share of the device's free memory.
_MEMORY_BYTES = 2**29
_MEMORY_SHARE = 8
_PROBE_LENGTH = 8
# What models say whose cache works in another way.
_CACHE_ERRORS = (TypeError, AttributeError, ValueError, LookupError, RuntimeError)
_GREEDY: dict[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "temperature": None,
    "top_p": None,
    "top_k": None,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_new_tokens": None,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
}


class HFTarget:
    """A causal language model that runs here.

    Args:
        model: a folder, a hub name, a GGUF file, or the folder of a PEFT adapter (its base is
            then taken from the adapter's own configuration).
        adapter: a PEFT adapter folder to put on `model`.
        base_model: where an adapter's base is, if not where its configuration says.
        revision: of a hub name.
        tokenizer: folder or hub name, if not beside the model.
        dtype: "auto" is float32 on a CPU and the checkpoint's own precision elsewhere.
        device: "auto", "cpu", "cuda", "cuda:1", …
        attn_implementation: as in transformers.
        trust_remote_code: whether code that comes with the model may run.
        cache_dir: where converted GGUF models are kept.
        batch_tokens: padded tokens a batch; None chooses by device.
        padding: the side on which short rows are filled up (behind a shared prefix: the right).
        reference: "base" (an adapter's base model), another model's folder or name, or None.
        bits: 4 or 8 quantises the weights on loading (extra `qlora`). An adapter that was trained on
            such weights asks for it itself, if it was saved here.

    Raises:
        ModelError: where something is missing or cannot be loaded, with what to do about it.
        MissingExtraError: where torch or transformers is not installed.
    """

    access = Access.WHITE_BOX

    def __init__(
        self,
        model: str | Path,
        *,
        adapter: str | Path | None = None,
        base_model: str | None = None,
        revision: str | None = None,
        tokenizer: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        attn_implementation: str | None = None,
        trust_remote_code: bool = False,
        cache_dir: Path | None = None,
        batch_tokens: int | None = None,
        padding: Padding = "right",
        reference: str | None = None,
        bits: int | None = None,
    ) -> None:
        need("torch", "hf")
        need("transformers", "hf")
        source = locate(
            str(model),
            adapter=None if adapter is None else str(adapter),
            base_model=base_model,
            revision=revision,
            cache_dir=cache_dir,
            bits=bits,
        )
        self.name = source.name
        self.padding: Padding = padding
        self._options: dict[str, Any] = {
            "dtype": dtype,
            "device": device,
            "attn_implementation": attn_implementation,
            "trust_remote_code": trust_remote_code,
            "cache_dir": cache_dir,
            "batch_tokens": batch_tokens,
            "padding": padding,
            "bits": bits,
        }
        loaded = load(
            source,
            tokenizer=tokenizer,
            dtype=dtype,
            device=device,
            attn_implementation=attn_implementation,
            trust_remote_code=trust_remote_code,
        )
        self.device, self.dtype = loaded.device, loaded.dtype
        self._model, self._tokenizer = loaded.model, loaded.tokenizer
        self.tokenizer = HFTokenizer(self._tokenizer)
        self.max_length = loaded.max_length
        self.batch_tokens = batch_tokens or _BATCH_TOKENS.get(self.device.type, 8_192)
        self._source = source
        self._reference = reference
        self.fingerprint = self._fingerprint(source)
        self._prepare()

    def _prepare(self) -> None:
        import torch

        self._peft: Any = self._model if self._source.adapter else None
        inner = self._model.get_base_model() if self._peft is not None else self._model
        self._virtual = bool(
            self._peft is not None and self._peft.active_peft_config.is_prompt_learning
        )
        if self._peft is not None and self._virtual:
            self.max_length -= self._peft.active_peft_config.num_virtual_tokens
        self._decoder: Any = getattr(inner, inner.base_model_prefix, None)
        self._head: Any = inner.get_output_embeddings()
        self._n_embedded: int = inner.get_input_embeddings().weight.shape[0]
        takes = () if self._decoder is None else inspect.signature(self._decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in takes else "past_key_values"
        self._takes_positions = "position_ids" in takes
        self.uses_adapter = True
        self._prefix: tuple[tuple[int, ...], Any] | None = None
        self._opened: Opened | None = None
        with torch.inference_mode(), self._adapter():
            self._refuse_encoders()
            self.head_apart = self._head_can_run_apart()
        self._continuing = self._new_continuing()
        self.remembers: bool | None = None
        self._longest_tried = 0
        self._token_bytes = 1
        self._n_read_anew = 0
        self._fills: bool | None = None
        self._step_works: bool | None = None
        self.prefix_cache: bool | None = None if self._decoder is not None else False

    # --- what the user and the run record see -------------------------------------------------

    def describe(self) -> dict[str, str]:
        """Provider, model, adapter, precision, device and the shortcuts in use."""
        facts = {
            "provider": "hf",
            "model": self.name,
            "architecture": type(self._model.config).__name__.removesuffix("Config"),
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "max_length": str(self.max_length),
            "head": "scored positions only" if self.head_apart else "as the model runs it",
        }
        if self._source.adapter is not None and self.uses_adapter:
            facts["adapter"] = str(self._source.adapter)
        if self._source.bits is not None:
            facts["bits"] = str(self._source.bits)
        if self._source.revision:
            facts["revision"] = self._source.revision
        return facts

    @property
    def model(self) -> PreTrainedModel:
        """The model itself, in evaluation mode; its weights have no gradients."""
        return self._model

    @functools.cached_property
    def reference(self) -> HFTarget | None:
        """The reference model: the adapter's base, or the one named, or None.

        Raises:
            ModelError: where "base" is asked for and there is no adapter, or it cannot be loaded.
        """
        if self._reference is None or self._reference == "none":
            return None
        if self._reference == "base":
            return self.without_adapter()
        return HFTarget(self._reference, **self._options)

    @property
    def has_base(self) -> bool:
        """Whether there is an adapter whose base can serve as reference."""
        return self._source.adapter is not None

    @property
    def has_adapter(self) -> bool:
        """Whether it is an adapter on a base, and not the base alone."""
        return self._peft is not None and self.uses_adapter

    def without_adapter(self) -> HFTarget:
        """The base model of an adapter: the same weights in memory, with the adapter off.

        An adapter that trained biases of the base cannot be switched off; the base is then loaded.

        Raises:
            ModelError: where there is no adapter.
        """
        if not self.has_base:
            raise no_base(self.name)
        if getattr(self._peft.active_peft_config, "bias", "none") != "none":
            base = HFTarget(self._source.model, **self._options)
            base.name = f"{self._source.model_name} (base)"
            return base
        base = copy.copy(self)
        base._become_base()  # noqa: SLF001 (a copy of this object)
        return base

    def _become_base(self) -> None:
        plain = replace(self._source, adapter=None, adapter_name=None)
        self.__dict__.pop("reference", None)
        self.uses_adapter = False
        self.name = f"{self._source.model_name} (base)"
        self.fingerprint = self._fingerprint(plain)
        self._prefix = None
        self._continuing = self._new_continuing()
        self._opened = None
        self._reference = None

    @property
    def n_read(self) -> int:
        """Tokens of prompts that it has read so far, to go on after them."""
        return self._n_read_anew + self._continuing.n_read

    @property
    def memory_tokens(self) -> int:
        """Tokens of prompts that it remembers for others that begin alike; 0 where it reads all anew."""
        import torch

        with torch.inference_mode(), self._adapter(), _memory_errors(torch), quiet():
            works = self._continuing_works([tuple(self._probe()[0].tolist())])
        return self._continuing.memory.most_bytes // self._token_bytes if works else 0

    def _fingerprint(self, source: Source) -> str:
        bits = "" if source.bits is None else f"-{source.bits}bit"
        return f"hf-{fingerprint_of(source)}-{str(self.dtype).removeprefix('torch.')}{bits}"

    # --- questions ----------------------------------------------------------------------------

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Statistics of every continuation token of the batch.

        Raises:
            OutOfMemoryError: where the batch does not fit.
            TargetError: where the model gives no finite numbers.
        """
        import torch

        with torch.inference_mode(), self._adapter(), _memory_errors(torch):
            if batch.growing and self._continuing_works([_whole(row) for row in batch.requests]):
                return self._remembering(lambda: self._continuing.score(batch.requests))
            if batch.prefix and self._prefix_works(batch):
                return self._forward(batch.prefix, batch.requests)
            return [
                answer for rows in self._without_prefix(batch) for answer in self._forward((), rows)
            ]

    @property
    def searches_beams(self) -> bool:
        """Whether answers can be those of a beam search: not behind tokens that are no words."""
        return not self._sees_virtual_tokens()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        numbers: Sequence[int] | None = None,
        stop: str = "",
        one_line: bool = False,
    ) -> list[list[int]]:
        """Continuations; the end of a text, turn or context ends one early, or what completes `stop` or the line.

        Prompts are run together, the short ones filled up on the left, and what they or earlier ones
        begin alike with is read once, where the model gives the same answer that way. In low
        precision, rounding that depends on the company can still change a draw. Beams are searched for
        each prompt alone. What a checkpoint's generation_config.json says of penalties and sampling is
        left aside.

        Raises:
            OutOfMemoryError: where they do not fit together.
        """
        import torch

        ending = Ending(frozenset(self._ends()), stop, self.tokenizer.decode, one_line)
        texts = [tuple(prompt) for prompt in prompts]
        rows = list(zip(texts, numbers or [0] * len(prompts), strict=True))
        made: list[list[int]] = [[] for _ in rows]
        with torch.inference_mode(), self._adapter(), _memory_errors(torch), quiet():
            for places in self._together(texts, max_new_tokens):
                room = min(max_new_tokens, self.max_length - len(rows[places[0]][0]))
                if room < 1:
                    continue
                written = self._continued([rows[i] for i in places], room, sampling, ending)
                for i, ids in zip(places, written, strict=True):
                    made[i] = ids
        return made

    def _together(self, prompts: Sequence[Ids], max_new_tokens: int) -> list[list[int]]:
        """Places of prompts that can be continued in one go."""
        alone: list[list[int]] = []
        by_length: dict[int, list[int]] = {}
        for i, n in enumerate(map(len, prompts)):
            if n + max_new_tokens <= self.max_length:
                by_length.setdefault(n, []).append(i)
            else:
                alone.append([i])
        if len(by_length) > 1 and (self._continuing_works(prompts) or self._filling_works()):
            return [sorted(i for of_length in by_length.values() for i in of_length), *alone]
        return [*by_length.values(), *alone]

    def _continued(
        self,
        rows: Sequence[tuple[Ids, int]],
        room: int,
        sampling: Sampling,
        ending: Ending,
    ) -> list[list[int]]:
        prompts = [prompt for prompt, _ in rows]
        if sampling.beams > 1:
            return [self._searched(prompt, room, sampling, ending) for prompt in prompts]
        chances = [chance(prompt, sampling, number) for prompt, number in rows]
        if self._continuing_works(prompts):
            return self._remembering(
                lambda: self._continuing.write(prompts, room, ending, sampling, chances)
            )
        drawn: list[Processor] = [Drawer(sampling, chances)] if sampling.temperature else []
        fewest = min(sampling.fewest, room)
        self._n_read_anew += sum(map(len, prompts))
        if self._sees_virtual_tokens():
            processors = [*self._open_ended(len(prompts[0]), fewest), *drawn]
            written = self._behind_virtual_tokens(prompts, room, processors, ending)
        else:
            width = max(map(len, prompts))
            processors = [*self._open_ended(width, fewest), *drawn]
            stops = [_stopper(ending, width)] if ending.reads_text else []
            out = self._generated(
                prompts, room, logits_processor=processors, stopping_criteria=stops
            )
            written = out.sequences[:, width:].tolist()
        return [ending.until(ids) for ids in written]

    def _open_ended(self, n_read: int, fewest: int) -> list[Processor]:
        """What keeps a text from ending before it has so many tokens after those that are read."""
        from transformers import MinNewTokensLengthLogitsProcessor

        ends = self._ends()
        if not (fewest and ends):
            return []
        return [MinNewTokensLengthLogitsProcessor(n_read, fewest, ends, device=str(self.device))]

    def _new_continuing(self, most_bytes: int | None = None) -> Continuing:
        import torch

        if most_bytes is None:
            on_cpu = self.device.type != "cuda"
            free = 0 if on_cpu else torch.cuda.mem_get_info(self.device)[0]
            most_bytes = max(_MEMORY_BYTES, free // _MEMORY_SHARE)
        return Continuing(
            self._logits_after,
            self._statistics_after,
            Prefixes(most_bytes),
            self.batch_tokens,
            self.device,
        )

    def _remembering(self, ask: Callable[[], T]) -> T:
        """What is answered from what is remembered, which goes first where there is no room."""
        try:
            return ask()
        except (RuntimeError, MemoryError):
            self._continuing.memory.forget()
            raise

    def _given(self, inputs: Inputs) -> dict[str, Any]:
        """What the model is called with."""
        self._check_vocabulary(inputs.ids)
        given = {"input_ids": inputs.ids, "attention_mask": inputs.mask, "use_cache": True}
        if self._takes_positions:
            given["position_ids"] = inputs.places
        return given | {self._cache_argument: inputs.cache}

    def _statistics_after(
        self, inputs: Inputs, rows: torch.Tensor, places: torch.Tensor, tokens: torch.Tensor
    ) -> list[torch.Tensor]:
        self._check_vocabulary(tokens)
        return self._statistics(self._given(inputs), rows, places, tokens.to(self.device))

    def _logits_after(self, inputs: Inputs) -> torch.Tensor:
        """Logits after the last token of each row, shape (rows, vocabulary)."""
        given = self._given(inputs)
        if self.head_apart:
            last: torch.Tensor = self._head(self._decoder(**given).last_hidden_state[:, -1])
        else:
            last = self._model(**given).logits[:, -1]
        return last

    def _behind_virtual_tokens(
        self,
        prompts: Sequence[Sequence[int]],
        room: int,
        processors: Sequence[Processor],
        ending: Ending,
    ) -> list[list[int]]:
        """Continuations of prompts of one length, token by token, by the model's forward pass.

        Training goes through that pass. In the generation of transformers, whose cache peft knows
        by another name, a prefix is left out, and a prompt takes the place of the text before it.
        """
        import torch

        ids = self._input(prompts)
        n_seen, cache = ids.shape[1], None
        ended: set[int] = set()
        for _ in range(room):
            logits, cache = self._behind(ids, cache)
            for processor in processors:
                logits = processor(ids, logits)
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
            ended |= {i for i, row in enumerate(ids[:, n_seen:].tolist()) if ending.is_at(row)}
            if len(ended) == len(prompts):
                break
        written: list[list[int]] = ids[:, n_seen:].tolist()
        return written

    def _behind(self, ids: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        """Logits of the token after the last one, and the cache if it may be used.

        Args:
            ids: (rows, tokens), without virtual tokens.
            cache: of virtual tokens and all but the last token; None reads everything.
        """
        if self._step_works is None:
            self._step_works = self._one_step_works()
        if not self._step_works:
            return self._last_logits(ids), None
        return self._step(ids, cache)

    def _step(self, ids: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        if cache is None:
            out = self._model(input_ids=ids, use_cache=True)
        else:  # the virtual tokens are in the cache
            inner = self._peft.get_base_model()
            out = inner(input_ids=ids[:, -1:], use_cache=True, **{self._cache_argument: cache})
        return out.logits[:, -1], getattr(out, self._cache_argument)

    def _searched(self, prompt: Ids, room: int, sampling: Sampling, ending: Ending) -> list[int]:
        """What a beam search finds, up to where it ends. The search itself knows of no stop."""
        self._n_read_anew += len(prompt)
        fewest = self._open_ended(len(prompt), min(sampling.fewest, room))
        out = self._generated(
            [prompt],
            room,
            logits_processor=fewest,
            num_beams=sampling.beams,
            early_stopping=True,
            length_penalty=1.0,
        )
        return ending.until(out.sequences[0, len(prompt) :].tolist())

    def _generated(self, prompts: Sequence[Sequence[int]], room: int, **more: Any) -> Any:
        """What transformers generates greedily, after prompts that are filled up on the left."""
        import torch

        width = max(map(len, prompts))
        ids = self._input([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            mask[i, width - len(prompt) :] = 1
        ends, pad = self._ends(), self._tokenizer.pad_token_id
        return self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=room,
            eos_token_id=ends or None,
            pad_token_id=pad if pad is not None else (ends[0] if ends else 0),
            return_dict_in_generate=True,
            **{**_GREEDY, **more},
        )

    def _ends(self) -> list[int]:
        """Ids that end a text or a turn, as checkpoint and tokenizer say."""
        said = self._model.generation_config.eos_token_id
        ends = [said] if isinstance(said, int) else list(said or ())
        if self.tokenizer.eos_id is not None:
            ends.append(self.tokenizer.eos_id)
        return list(dict.fromkeys(ends))

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """The most likely next token of each prompt."""
        import torch

        with torch.inference_mode(), self._adapter(), _memory_errors(torch):
            return [int(self._last_logits(self._input([prompt]))[0].argmax()) for prompt in prompts]

    def next_token_probabilities(
        self, prompts: Sequence[Sequence[int]], *, top: int = 100, among: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Probabilities of the likeliest next tokens, or of those that are named.

        Prompts alike in length are read together, as far as they fit the token budget. Probabilities
        are computed in float32 whatever the model's precision.

        Raises:
            OutOfMemoryError: where a prompt does not fit.
        """
        import torch

        k = min(top, self._n_embedded) if among is None else among.shape[1]
        ids = np.zeros((len(prompts), k), dtype=np.int64)
        found = np.zeros((len(prompts), k), dtype=np.float64)
        with torch.inference_mode(), self._adapter(), _memory_errors(torch):
            for places in self._alike_in_length([len(prompt) for prompt in prompts]):
                p = self._after([prompts[i] for i in places]).float().softmax(-1)
                those = p.topk(k, dim=-1).indices if among is None else torch.tensor(among[places])
                ids[places] = those.cpu().numpy()
                found[places] = p.gather(-1, those.to(p.device)).cpu().numpy()
        return ids, found

    def _alike_in_length(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Places of texts that are read together: of one length where virtual tokens come first."""
        some: list[int] = []
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            full = some and (len(some) + 1) * lengths[some[0]] > self.batch_tokens
            other = some and self._sees_virtual_tokens() and lengths[some[0]] != lengths[i]
            if full or other:
                yield some
                some = []
            some.append(i)
        if some:
            yield some

    def _after(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits of the token after each prompt, shape (prompts, vocabulary)."""
        import torch

        if len({len(prompt) for prompt in prompts}) == 1:
            return self._last_logits(self._input(prompts))
        width = max(map(len, prompts))
        # Filled up on the right: no token sees those after it.
        ids = self._input([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts])
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        rows = torch.arange(len(prompts), device=self.device)
        if self.head_apart:
            states = self._decoder(input_ids=ids, use_cache=False).last_hidden_state
            logits: torch.Tensor = self._head(states[rows, last])
            return logits
        return self._logits(ids)[rows, last]

    @contextlib.contextmanager
    def after_step(self, examples: Sequence[Encoded], *, learning_rate: float) -> Iterator[None]:
        """As long as the context lasts, it is the model that one step of AdamW leaves.

        Where there is an adapter, the step changes that alone, as fine-tuning did.

        Raises:
            TargetError: where a step would be none, or is not finite.
            OutOfMemoryError: where the examples do not fit into memory together.
        """
        import torch

        from unseen.targets.loss import batch_loss

        weights = self._learning_weights()
        before = [weight.detach().clone() for weight in weights]
        self.forget()
        try:
            with self._adapter():
                with _memory_errors(torch):
                    for weight in weights:
                        weight.requires_grad_()
                    optimizer = torch.optim.AdamW(weights, lr=learning_rate, weight_decay=0.0)
                    loss = batch_loss(self._model, examples)
                    if not bool(torch.isfinite(loss)):
                        raise TargetError(f"{self.name} gives a loss that is not finite")
                    loss.backward()
                    optimizer.step()
                    del optimizer, loss
                    for weight in weights:
                        weight.grad = None
                yield
        finally:
            with torch.no_grad():
                for weight, old in zip(weights, before, strict=True):
                    weight.requires_grad_(requires_grad=False)
                    weight.grad = None
                    weight.copy_(old)
            self.forget()

    def forget(self) -> None:
        """Drops what other weights have read."""
        self._prefix = None
        self._continuing.memory.forget()

    @property
    def width(self) -> int:
        """Numbers of a hidden state."""
        return int(self._model.config.get_text_config().hidden_size)

    def look(self, looks: Sequence[Look], passages: Sequence[Passage]) -> list[list[Seen]]:
        """What is seen of gradients and states, for each look a list, in the order of the passages.

        Raises:
            TargetError: where the model cannot be looked at like this.
            OutOfMemoryError: where the passages do not fit together.
        """
        import torch

        from unseen.targets.inside import look

        with self._adapter(), _memory_errors(torch):
            return look(self._inside(), looks, passages)

    def check_step(self, look: StepLook, passage: Passage) -> StepCheck:
        """Whether steps on passages can be batched, tried on the first passage that is asked for."""
        import torch

        from unseen.targets.inside.steps import check_step

        with self._adapter(), _memory_errors(torch):
            return check_step(self._inside(), [look], passage)

    def _inside(self) -> Opened:
        from unseen.targets.inside.model import Opened

        if self._opened is None:
            self._opened = Opened(
                self.name,
                self._model,
                self._decoder,
                self._head,
                self.head_apart and not self._sees_virtual_tokens(),
                self._takes_positions,
                self.padding,
                self._of_weights,
            )
        return self._opened

    def _of_weights(self, weights: Weights, *, steps: bool = True) -> dict[str, Any]:
        """All weights in use, or those of the adapter, by name.

        Args:
            weights: which.
            steps: whether they take small steps; else it is their gradient that is asked for.

        Raises:
            TargetError: where there are none, or they cannot.
        """
        import torch

        adapted = self.has_adapter
        if weights == "adapter" and not adapted:
            raise TargetError(f"{self.name} has no adapter", fix="leave out weights=adapter")
        if weights == "all" and getattr(self._model, "is_quantized", False):
            fix = "weights=adapter: those of the adapter can" if adapted else None
            cannot = "cannot take a step" if steps else "have no gradient"
            raise TargetError(f"{self.name} is quantised: its weights {cannot}", fix=fix)
        found = {
            name: weight
            for name, weight in self._model.named_parameters()
            if (weights == "all" and adapted) or self._is_of_adapter(name) == (weights == "adapter")
        }
        for weight in found.values() if steps else ():
            if weight.dtype not in (torch.float32, torch.float64):
                kind = str(weight.dtype).removeprefix("torch.")
                raise TargetError(
                    f"a small step is lost in weights in {kind}: measure it with --dtype float32",
                    fix="--dtype float32",
                )
        return found

    def _learning_weights(self) -> list[torch.nn.Parameter]:
        """The weights that fine-tuning would change: the adapter's, or else all.

        Raises:
            TargetError: where they cannot take a small step.
        """
        return list(self._of_weights("adapter" if self.has_adapter else "all").values())

    def _is_of_adapter(self, name: str) -> bool:
        """Whether a weight belongs to the adapter, by its name in peft's model."""
        if self._peft is None:
            return False
        if self._virtual:
            return "prompt_encoder" in name
        kept = ".modules_to_save." in name or ".trainable_tokens_" in name
        return kept or self._peft.base_model.prefix in name

    def word_embeddings(self) -> tuple[PreTrainedTokenizerBase, FloatArray]:
        """Its tokenizer, and the input embeddings of all tokens, shape (vocabulary, width)."""
        table = self._model.get_input_embeddings().weight
        matrix: FloatArray = table.detach().float().cpu().numpy()
        return self._tokenizer, matrix

    # --- forward passes -----------------------------------------------------------------------

    def _forward(self, prefix: tuple[int, ...], rows: Sequence[Request]) -> list[TokenStats]:
        import torch

        texts = [(row.context + row.continuation)[len(prefix) :] for row in rows]
        width = max(map(len, texts))
        # Filling would come between a prefix or virtual tokens and the row, and use up windows.
        left = self.padding == "left" and not prefix and not self._sees_virtual_tokens()
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        places: list[torch.Tensor] = []
        for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
            start = width - len(text) if left else 0
            ids[i, start : start + len(text)] = torch.tensor(text)
            mask[i, start : start + len(text)] = 1
            first = start + len(row.context) - len(prefix) - 1
            places.append(torch.arange(first, first + len(row.continuation)))
        self._check_vocabulary(ids)
        inputs: dict[str, Any] = {"input_ids": ids.to(self.device), "use_cache": False}
        if prefix:
            past = copy.deepcopy(self._read_prefix(prefix))
            past.batch_repeat_interleave(len(rows))
            inputs |= {self._cache_argument: past, "use_cache": True}
        if left and not bool(mask.all()):
            inputs["attention_mask"] = mask.to(self.device)
            if self._takes_positions:
                inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0).to(self.device)
        row_of = torch.cat([torch.full_like(place, i) for i, place in enumerate(places)])
        tokens = torch.tensor([token for row in rows for token in row.continuation])
        parts = self._statistics(inputs, row_of, torch.cat(places), tokens.to(self.device))
        return split(parts, [len(row.continuation) for row in rows])

    def _statistics(
        self,
        inputs: dict[str, Any],
        row_of: torch.Tensor,
        places: torch.Tensor,
        tokens: torch.Tensor,
    ) -> list[torch.Tensor]:
        """Chunks of log-prob, mean, sd, rank and argmax of the given positions, side by side."""
        import torch

        row_of, places = row_of.to(self.device), places.to(self.device)
        if self.head_apart and not self._sees_virtual_tokens():
            states = self._decoder(**inputs).last_hidden_state[row_of, places]
            logits_of = self._head
        else:
            width = inputs["input_ids"].shape[1]
            states = self._model(**inputs).logits[:, -width:][row_of, places]
            logits_of = _identity
        chunk, block = self._rows_at_once()
        found: list[tuple[torch.Tensor, ...]] = []
        for start in range(0, len(tokens), chunk):
            logits, those = logits_of(states[start : start + chunk]), tokens[start : start + chunk]
            found += [
                moments(logits[i : i + block], those[i : i + block])
                for i in range(0, len(those), block)
            ]
        parts = [torch.cat(part).cpu() for part in zip(*found, strict=True)]
        if not all(bool(torch.isfinite(part).all()) for part in parts[:3]):
            raise TargetError(
                f"{self.name} gives log-probabilities that are not finite",
                fix="its weights may be damaged, or overflow in this precision: try --dtype float32",
            )
        return parts

    def _rows_at_once(self) -> tuple[int, int]:
        """Positions that the head runs on together, and those that statistics are made of."""
        chunk = _HEAD_ROWS.get(self.device.type, _HEAD_ROWS["cuda"])
        cache = _CACHE_BYTES.get(self.device.type)
        block = chunk if cache is None else cache // (4 * self._n_embedded)
        return chunk, max(1, min(chunk, block))

    def _input(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        import torch

        ids = torch.tensor([list(row) for row in rows])
        self._check_vocabulary(ids)
        return ids.to(self.device)

    def _check_vocabulary(self, ids: torch.Tensor) -> None:
        if int(ids.max()) >= self._n_embedded:
            raise TargetError(
                f"the tokenizer gives the id {int(ids.max())}, but {self.name} knows "
                f"{self._n_embedded} tokens",
                fix="is it the model's own tokenizer? Name another one with --tokenizer",
            )

    def _last_logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of the token after the last one, shape (rows, vocabulary)."""
        if self.head_apart and not self._sees_virtual_tokens():
            states = self._decoder(input_ids=ids, use_cache=False).last_hidden_state
            logits: torch.Tensor = self._head(states[:, -1])
            return logits
        return self._logits(ids)[:, -1]

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(input_ids=ids, use_cache=False).logits
        return logits[:, -ids.shape[1] :]

    def _read_prefix(self, prefix: tuple[int, ...]) -> Any:
        import torch

        if self._prefix is None or self._prefix[0] != prefix:
            self._prefix = None
            ids = torch.tensor([prefix], device=self.device)
            cache = getattr(self._decoder(input_ids=ids, use_cache=True), self._cache_argument)
            self._prefix = (prefix, cache)
        return self._prefix[1]

    def _without_prefix(self, batch: Batch) -> Iterator[tuple[Request, ...]]:
        """The batch's rows, in parts whose whole length fits the token budget."""
        longest = max(row.length for row in batch.requests)
        whole = not (batch.prefix or batch.growing)
        n_rows = len(batch.requests) if whole else max(1, self.batch_tokens // longest)
        for start in range(0, len(batch.requests), n_rows):
            yield batch.requests[start : start + n_rows]

    # --- shortcuts, each measured before it is used -------------------------------------------

    def _probe(self) -> torch.Tensor:
        import torch

        return torch.arange(1, 1 + _PROBE_LENGTH, device=self.device)[None] * 7 % self._n_embedded

    def _refuse_encoders(self) -> None:
        """Refuses a model in which a token sees those after it: it would see itself.

        Raises:
            ModelError: where the last token changes what the model says of those before it.
        """
        import torch

        ids = self._probe()
        other = ids.clone()
        other[0, -1] = (ids[0, -1] + 1) % self._n_embedded
        tolerance = 1e-4 if self._is_exact() else 0.1
        before, after = self._logits(ids)[:, :-1].float(), self._logits(other)[:, :-1].float()
        if not torch.allclose(before, after, atol=tolerance, rtol=tolerance, equal_nan=True):
            raise ModelError(
                f"{self.name} is no causal language model: what it says of a token depends on "
                "tokens that come later",
                fix="an encoder such as BERT cannot be asked how likely a text is",
            )

    def _alike(self, some: torch.Tensor, others: torch.Tensor) -> bool:
        """Whether two ways to the same logits differ by rounding alone."""
        import torch

        tolerance = 1e-4 if self._is_exact() else 0.25
        return bool(torch.allclose(some.float(), others.float(), atol=tolerance, rtol=tolerance))

    def _is_exact(self) -> bool:
        return str(self.dtype) in ("torch.float32", "torch.float64")

    def _head_can_run_apart(self) -> bool:
        """Whether head(decoder(x)) is what the model itself says: soft-caps and scales differ."""
        import torch

        if self._decoder is None or self._head is None or self._virtual:
            return False
        if getattr(self._peft and self._peft.active_peft_config, "alora_invocation_tokens", None):
            return False
        ids = self._probe()
        try:
            apart = self._head(self._decoder(input_ids=ids, use_cache=False).last_hidden_state)
        except (TypeError, AttributeError, RuntimeError):
            return False
        whole = self._logits(ids)
        return bool(
            apart.shape == whole.shape and torch.allclose(apart, whole, atol=1e-5, rtol=1e-4)
        )

    def _prefix_works(self, batch: Batch) -> bool:
        """Whether a cached prefix gives what reading it again gives, tried on the first row."""
        if self._sees_virtual_tokens():
            return False
        if self.prefix_cache is None:
            import torch

            row = batch.requests[0]
            try:
                cached = self._forward(batch.prefix, (row, row))[1].logprob
            except _CACHE_ERRORS as error:
                if _is_out_of_memory(torch, error):
                    raise
                self.prefix_cache = False
                return False
            plain = self._forward((), (row,))[0].logprob
            tolerance = 1e-3 if self._is_exact() else 0.25
            self.prefix_cache = bool(abs(cached - plain).max() <= tolerance)
        return self.prefix_cache

    def _continuing_works(self, prompts: Sequence[Ids]) -> bool:
        """Whether what is read in parts gives what reading at once gives, tried on the longest prompt.

        It is tried again on one that is more than twice as long: windows may end between the two.
        """
        import torch

        if self._sees_virtual_tokens() or self._decoder is None:
            return False
        longest = max(prompts, key=len)
        if len(longest) < _PROBE_LENGTH:
            longest = tuple(self._probe()[0].tolist())
        longer = len(longest) > 2 * self._longest_tried
        if self.remembers is None or (self.remembers and longer):
            half = longest[: len(longest) // 2]
            trial = self._new_continuing(most_bytes=0)
            try:
                trial.read([half[:-1]])
                parts = trial.read([longest, half])
            except _CACHE_ERRORS as error:
                if _is_out_of_memory(torch, error):
                    raise
                self.remembers = False
                return False
            self._token_bytes = max(1, trial.memory.n_bytes // len(longest))
            self._longest_tried = len(longest)
            whole = [self._last_logits(self._input([ids]))[0] for ids in (longest, half)]
            self.remembers = self._alike(
                torch.stack([parts[longest], parts[half]]), torch.stack(whole)
            )
        return bool(self.remembers)

    def _filling_works(self) -> bool:
        """Whether prompts may be filled up on the left: the answers are those without."""
        if self._sees_virtual_tokens():
            return False
        if self._fills is None:
            probe = self._probe()[0].tolist()
            logits = []
            for prompts in ([probe[3:]], [probe, probe[3:]]):
                out = self._generated(prompts, 1, output_logits=True)
                logits.append(out.logits[0][-1])
            self._fills = self._alike(*logits)
        return self._fills

    def _one_step_works(self) -> bool:
        """Whether a token behind a cache of virtual tokens is read as it is without one."""
        import torch

        ids = self._probe()
        try:
            _, cache = self._step(ids[:, :-1], None)
            cached, _ = self._step(ids, cache)
        except _CACHE_ERRORS as error:
            if _is_out_of_memory(torch, error):
                raise
            return False
        return self._alike(cached, self._last_logits(ids))

    def _sees_virtual_tokens(self) -> bool:
        return self._virtual and self.uses_adapter

    @contextlib.contextmanager
    def _adapter(self) -> Iterator[None]:
        if self._peft is None:
            yield
        elif self.uses_adapter:
            with warnings.catch_warnings():
                if self._virtual:  # peft and transformers quarrel about names of arguments
                    warnings.simplefilter("ignore")
                yield
        else:
            with self._peft.disable_adapter():
                yield


def _stopper(ending: Ending, width: int) -> Callable[..., torch.Tensor]:
    """Tells the generation of transformers which rows have ended, after so many ids of prompts."""

    def ended(ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        import torch

        rows = [ending.is_at(row) for row in ids[:, width:].tolist()]
        return torch.tensor(rows, device=ids.device)

    return ended


def _whole(request: Request) -> Ids:
    return request.context + request.continuation


def _identity(logits: torch.Tensor) -> torch.Tensor:
    return logits


@contextlib.contextmanager
def _memory_errors(torch_: Any) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(torch_, error):
            raise
        if torch_.cuda.is_available():
            torch_.cuda.empty_cache()
        raise OutOfMemoryError("the batch does not fit into memory") from error


def _is_out_of_memory(torch_: Any, error: Exception) -> bool:
    if isinstance(error, (torch_.OutOfMemoryError, MemoryError)):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and (
        "allocate memory" in said or "not enough memory" in said
    )
