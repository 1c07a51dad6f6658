"""A model behind an endpoint that speaks as OpenAI's does: vLLM, llama.cpp, Ollama, hosted ones.

It gives text and no more. Some endpoints take the options that ask for log-probabilities, and leave
them out without a word; some tell wrong ones. So no higher rung is offered before it is proved.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NoReturn

from unseen.errors import AccessError, ConfigError, ModelError, TargetError, UnseenError
from unseen.targets.access import Access, Withheld
from unseen.targets.characters import LONGEST, TextTokenizer, turns_of
from unseen.targets.endpoint import (
    Api,
    Counts,
    Endpoint,
    NoAnswer,
    NotTaken,
    Price,
    Rejected,
)
from unseen.targets.pace import Stopped
from unseen.types import GREEDY, Batch, Prompt, Sampling, TokenStats

_HELLO = "Name a colour."
_FEW = 8
_ENOUGH_ANSWERED = 5  # then a question that is rejected is so by itself
_MOST_REJECTED = 20  # where fewer than these are answered
_LIMITS = ("max_tokens", "max_completion_tokens")
"""What endpoints call the most tokens of an answer: those of old, and models that think first."""


class OpenAITarget:
    """A model behind an endpoint, asked over HTTP: text only.

    Its token ids are characters (`TextTokenizer`). The tokens of an answer are the model's own. Questions
    are sent several at a time; each is asked again after a fault that may pass, as often and after as
    long as the endpoint asks for. Making one sends one short question of our own: whether it answers,
    and which options it takes.

    What is drawn follows from the sampling's seed and number as far as the endpoint honours a seed.

    Args:
        model: what the endpoint calls the model.
        base_url: where it is, up to and without `/chat/completions`; default: the environment variable
            OPENAI_BASE_URL, or else OpenAI's own.
        api_key_env: the environment variable that holds the key; the key itself is kept nowhere.
        api: "chat" sends messages, "completions" one text that the model goes on with.
        access: "text"; higher rungs are not read.
        concurrency: requests under way at once, at most; fewer where the endpoint complains.
        rpm: requests a minute, at most, evenly spread; None for no limit.
        timeout: seconds after which an answer is given up.
        max_retries: times that a question is asked again.
        max_requests: requests in all, those that are sent again included; None for no limit.
        price: US dollars per million tokens that it reads, and that it writes.
        max_cost: US dollars from which on nothing is sent, by the price and the tokens that it tells; what
            is under way then still comes. None for no limit.
        seed: of the endpoint, where it takes one.

    Attributes:
        counts: what was asked so far, and what came back.

    Raises:
        ModelError: where it does not answer, or the key, the address or the name is wrong.
        ConfigError: where an argument is none.
        MissingExtraError: where the client is not installed (extra `api`).
    """

    access = Access.TEXT

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        api: Api = "chat",
        access: str = "text",
        concurrency: int = 8,
        rpm: float | None = None,
        timeout: float = 60.0,
        max_retries: int = 5,
        max_requests: int | None = None,
        price: Sequence[float] = (),
        max_cost: float | None = None,
        seed: int = 0,
    ) -> None:
        if access != Access.TEXT.word:
            raise ConfigError(
                f"got access {access!r}, but an endpoint gives text alone", fix="access='text'"
            )
        if rpm is not None and rpm <= 0:
            raise ConfigError(f"got rpm={rpm:g}", fix="rpm above 0, or None for no limit")
        if api not in ("chat", "completions") or concurrency < 1 or max_retries < 0 or timeout <= 0:
            raise ConfigError(
                f"got api={api!r}, concurrency={concurrency}, max_retries={max_retries}, "
                f"timeout={timeout:g}",
                fix="api is chat or completions, concurrency at least 1, max_retries at least 0, "
                "timeout above 0",
            )
        self.name = f"openai/{model}"
        self.tokenizer = TextTokenizer(chat=api == "chat")
        self.max_length = LONGEST
        self.batch_tokens = 16_384
        self._model, self._api, self._seed = model, api, seed
        self._concurrency = concurrency
        self.endpoint = Endpoint(
            base_url,
            model=model,
            api=api,
            key_name=api_key_env,
            concurrency=concurrency,
            rpm=rpm,
            timeout=timeout,
            max_retries=max_retries,
            max_requests=max_requests,
            price=_price(price, max_cost),
            max_cost=max_cost,
        )
        self._left_out: set[str] = {_LIMITS[1]}
        self._n_answered = self._n_rejected = 0  # about: several threads count
        self._version = _version(self._first_answer())
        if max_cost is not None and not self.counts.read:
            raise ModelError(
                f"{self.name} does not tell how many tokens it reads: what it costs cannot be known",
                fix="--max-requests N instead of --max-cost",
            )
        about = [self.endpoint.url, model, api, seed, self._version]
        digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
        self.fingerprint = f"openai-{digest.hexdigest()}"

    # --- what the user and the run record see -------------------------------------------------

    @property
    def counts(self) -> Counts:
        return self.endpoint.counts

    @property
    def max_requests(self) -> int | None:
        """Requests in all, at most."""
        return self.endpoint.max_requests

    @property
    def price(self) -> Price | None:
        """Of its tokens; None where it is not known."""
        return self.endpoint.price

    def count_with(self, other: OpenAITarget) -> None:
        """From now on, both count together, against one budget."""
        other.counts.add(self.counts)
        self.endpoint.counts = other.counts

    def describe(self) -> dict[str, str]:
        """Provider, model, address, and what the endpoint says of itself."""
        facts = {
            "provider": "openai",
            "model": self._model,
            "url": self.endpoint.url,
            "api": self._api,
            "access": self.access.word,
        }
        if self._version is not None:
            facts["system_fingerprint"] = self._version
        if "seed" in self._left_out:
            facts["seed"] = "not taken"
        return facts

    # --- text -------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        numbers: Sequence[int] | None = None,
        stop: str = "",
        one_line: bool = False,  # noqa: ARG002 (it cannot be told)
    ) -> list[list[int]]:
        """Answers, in the order of the prompts: characters of at most so many tokens of the model.

        What an answer stops at is not in it.

        Raises:
            UnseenError: where the endpoint answers no more.
        """
        rows = [
            Prompt(tuple(prompt), max_new_tokens, sampling, number, stop)
            for prompt, number in zip(prompts, numbers or [0] * len(prompts), strict=True)
        ]
        answers = dict(self.each(list(dict.fromkeys(rows))))
        return [list(answers[row]) for row in rows]

    def each(self, prompts: Sequence[Prompt]) -> Generator[tuple[Prompt, list[int]], None, None]:
        """Every prompt and its answer, as they come.

        Where the endpoint answers no more, those that are under way still come before the error.

        Raises:
            ConfigError: where the endpoint cannot be told how to draw.
            UnseenError: where it answers no more.
        """
        for prompt in prompts:
            _check(prompt.sampling)
        stop = threading.Event()
        fault: UnseenError | None = None
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="endpoint") as pool:
            under_way = {pool.submit(self._answer, prompt, stop): prompt for prompt in prompts}
            try:
                for future in as_completed(under_way):
                    try:
                        yield under_way[future], future.result()
                    except Stopped:
                        continue
                    except UnseenError as error:
                        fault = fault or error
            finally:
                stop.set()
        if fault is not None:
            raise fault

    def _answer(self, prompt: Prompt, stop: threading.Event) -> list[int]:
        try:
            text = self.text(self.ask(self.body(prompt), stop))
            text = text.partition(prompt.stop)[0] if prompt.stop else text
        except NoAnswer as error:
            self.counts.no_answer(error.why)
            return [int(error.why)]
        except UnseenError:
            stop.set()  # at once: no other is to begin
            raise
        self.counts.answer(empty=not text.strip())
        # Half a character may come back, and nothing that reads text takes one.
        return self.tokenizer.encode(text.encode("utf-8", "replace").decode())

    def ask(self, body: dict[str, Any], stop: threading.Event | None = None) -> Any:
        """The whole answer of the endpoint, in its own words: for those who try what it gives.

        Args:
            body: the fields of the request; what the endpoint does not take is left out.
            stop: set where nobody waits any more.

        Raises:
            NoAnswer: where this question has none.
            UnseenError: where no other would be answered either.
        """
        try:
            answer = self.endpoint.ask(self._taken(body), stop)
        except NotTaken as error:
            if error.name != "stop":
                raise error.refused from None
            self._left_out.add("stop")  # it saves tokens, and we cut ourselves
            return self.ask(body, stop)
        except Rejected as error:
            if self._answers_others():
                raise NoAnswer(Withheld.REJECTED) from None
            raise error.refused from None
        self._n_answered += 1
        self._count(answer)
        return answer

    def _answers_others(self) -> bool:
        """Whether a question that was rejected is so by itself: others are answered, at least our own."""
        self._n_rejected += 1
        if self._n_rejected > max(_MOST_REJECTED, self._n_answered):
            return False
        if self._n_answered < _ENOUGH_ANSWERED:
            try:
                self._first_answer()
            except (ModelError, TargetError):
                return False
        return True

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The fields of a request.

        Raises:
            NoAnswer: where it cannot be asked.
        """
        turns = turns_of(prompt.ids)
        text = self.tokenizer.decode(prompt.ids)
        if self._api == "completions":
            asked: dict[str, Any] = {"prompt": text}
        elif turns is None:
            asked = {"messages": [{"role": "user", "content": text}]}
        else:
            if turns[-1].role == "assistant" and turns[-1].content:
                raise NoAnswer(Withheld.BEGUN)
            if turns[-1].role == "assistant":
                turns = turns[:-1]
            asked = {"messages": [{"role": t.role, "content": t.content} for t in turns]}
        return asked | self._options(prompt)

    def _options(self, prompt: Prompt) -> dict[str, Any]:
        drawn = prompt.sampling
        options: dict[str, Any] = dict.fromkeys(_LIMITS, prompt.max_new_tokens)
        options |= {"temperature": drawn.temperature, "seed": self._seed_of(drawn, prompt.number)}
        options |= {} if drawn.top_p == 1 else {"top_p": drawn.top_p}
        return options | ({"stop": prompt.stop} if prompt.stop else {})

    def _seed_of(self, sampling: Sampling, number: int) -> int:
        """What the endpoint is given as a seed: of an int that all of them take."""
        if not sampling.temperature:
            return self._seed
        about = json.dumps([self._seed, sampling.seed, number]).encode()
        return int.from_bytes(hashlib.blake2b(about, digest_size=4).digest(), "little") >> 1

    def _taken(self, body: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in body.items() if name not in self._left_out}

    def _first_answer(self) -> Any:
        """Asks something of our own, and finds out which options have to be left out.

        Raises:
            ModelError: where it does not answer, or not without sampling.
        """
        prompt = Prompt(tuple(self.tokenizer.encode(_HELLO)), _FEW)
        body = self.body(prompt)
        while True:
            try:
                answer = self.endpoint.ask(self._taken(body), first=True)
            except NotTaken as error:
                if error.name == _LIMITS[0] and _LIMITS[1] in self._left_out:
                    self._left_out ^= set(_LIMITS)
                elif error.name == "seed":
                    self._left_out.add("seed")
                else:
                    raise ModelError(
                        f"{self.name} takes no {error.name}: {error.refused.problem}",
                        fix="it cannot be asked for its likeliest answer: name another model",
                    ) from None
            except NoAnswer as error:
                raise ModelError(f"{self.name}: {error.why.reason}") from None
            else:
                self._count(answer)
                return answer

    def text(self, answer: Any) -> str:
        """The text of an answer.

        Raises:
            NoAnswer: where it has none.
        """
        choice = answer.choices[0]
        said = getattr(choice, "message", None) if self._api == "chat" else choice
        text = getattr(said, "content" if self._api == "chat" else "text", None)
        text = text if isinstance(text, str) else ""
        finish = getattr(choice, "finish_reason", None)
        if finish == "content_filter":
            raise NoAnswer(Withheld.FILTERED)
        if not text and getattr(said, "refusal", None):
            raise NoAnswer(Withheld.REFUSED)
        if not text and finish == "length":
            raise NoAnswer(Withheld.USED_UP)
        return text

    def _count(self, answer: Any) -> None:
        usage = getattr(answer, "usage", None)
        self.counts.answer(
            read=getattr(usage, "prompt_tokens", None) or 0,
            written=getattr(usage, "completion_tokens", None) or 0,
        )

    # --- what it does not give ----------------------------------------------------------------

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:  # noqa: ARG002
        """It does not tell its first choices."""
        self._refuse(Access.LABEL)

    def execute(self, batch: Batch) -> list[TokenStats]:  # noqa: ARG002
        """It does not tell how likely a text is."""
        self._refuse(Access.LOGPROB)

    def _refuse(self, needed: Access) -> NoReturn:
        raise AccessError(f"this needs {needed.word} access, but {self.name} gives text")


def _price(price: Sequence[float], max_cost: float | None) -> Price | None:
    """Of tokens that are read, and of those that are written.

    Raises:
        ConfigError: where it is none, or there is a limit without one.
    """
    if max_cost is not None and not price:
        raise ConfigError(
            "the cost of an endpoint is limited, and its price is not given",
            fix="--price READ,WRITTEN: US dollars per million tokens, for example 0.15,0.60",
        )
    if not price:
        return None
    try:
        read, written = price
    except ValueError:
        read = written = math.nan
    if not (0 <= read < math.inf and 0 <= written < math.inf):
        raise ConfigError(
            f"got the price {','.join(map(str, price))}",
            fix="--price READ,WRITTEN: US dollars per million tokens, for example 0.15,0.60",
        )
    return read, written


def _version(answer: Any) -> str | None:
    told = getattr(answer, "system_fingerprint", None)
    return told if isinstance(told, str) and told else None


def _check(sampling: Sampling) -> None:
    """Refuses what an endpoint cannot be told.

    Raises:
        ConfigError: with what it is.
    """
    for name, what in (
        ("top_k", f"draw from the {sampling.top_k} likeliest tokens"),
        ("fewest", f"write {sampling.fewest} tokens at least"),
    ):
        if getattr(sampling, name):
            raise ConfigError(
                f"an endpoint cannot be told to {what}",
                fix=f"write {name}=0 in the brackets of the attack or defence: NAME[{name}=0]",
            )
    if sampling.beams > 1:
        raise ConfigError("an endpoint cannot be told to search beams")
