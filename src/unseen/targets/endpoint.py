"""An endpoint that speaks as OpenAI's does: one question, its answer, and everything that goes wrong.

What a server says of a question may hold the question: none of it goes into a message, but for the
names of codes and parameters, and, before any record is sent, the sentence itself.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from unseen.errors import (
    BudgetError,
    ConfigError,
    ModelError,
    TargetError,
    UnseenError,
    need,
    short,
    suggestion,
)
from unseen.targets.access import Withheld
from unseen.targets.pace import Pace

Api = Literal["chat", "completions"]
Price = tuple[float, float]
"""US dollars per million tokens that are read, and that are written."""

OPENAI = "https://api.openai.com/v1"
_FIRST_WAIT, _LONGEST_BACKOFF = 0.5, 20.0
_LONGEST_WAIT = 900.0
"""Seconds that we wait where the endpoint asks for it."""
_ODD = "it answers with something that is no completion"
_KEPT = "what was answered is kept: the same command continues"
_NAME = re.compile(r"[\w.\-]{1,60}")
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|unexpected|unknown|unrecognized|not permitted|extra inputs",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|maximum (context|input|prompt|model)|too long|too many tokens|"
    r"exceeds? .{0,60}(tokens|length|context)",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[ _](filter|management|policy)", re.IGNORECASE)
_SPENT = re.compile(r"quota|billing|credit", re.IGNORECASE)


def dollars(amount: float) -> str:
    """An amount as it is read, with as many places as it needs.

    >>> dollars(12.3), dollars(0.00042)
    ('$12.30', '$0.00042')
    """
    return f"${amount:.2f}" if amount == 0 or amount >= 0.1 else f"${amount:.2g}"


def cost_of(price: Price, read: int, written: int) -> float:
    """US dollars of so many tokens."""
    return (price[0] * read + price[1] * written) / 1_000_000


class Again(Exception):  # noqa: N818 (it never leaves this folder)
    """It may work the next time.

    Args:
        finally_: what is said where it never does.
        wait: seconds that the endpoint asks to wait, or None.
        busy: whether it was asked too much at once.
    """

    def __init__(
        self, finally_: UnseenError, *, wait: float | None = None, busy: bool = False
    ) -> None:
        super().__init__(type(finally_).__name__)
        self.finally_ = finally_
        self.wait = wait
        self.busy = busy


class NoAnswer(Exception):  # noqa: N818 (it never leaves this folder)
    """This question has no answer, and others have.

    Args:
        why: the reason.
    """

    def __init__(self, why: Withheld) -> None:
        super().__init__(why.name)
        self.why = why


class NotTaken(Exception):  # noqa: N818 (it never leaves this folder)
    """The endpoint takes no such option.

    Args:
        name: of the option.
        refused: what is said where it cannot be left out.
    """

    def __init__(self, name: str, refused: UnseenError) -> None:
        super().__init__(name)
        self.name = name
        self.refused = refused


class Rejected(Exception):  # noqa: N818 (it never leaves this folder)
    """The endpoint does not take this question; whether it takes others is not known.

    Args:
        refused: what is said where it takes none.
    """

    def __init__(self, refused: UnseenError) -> None:
        super().__init__(refused.problem)
        self.refused = refused


@dataclass
class Counts:
    """What an endpoint was asked, and what came back; several threads count.

    Attributes:
        before: requests of earlier attempts, which count against the same budget.
        read_before: tokens read in them.
        written_before: tokens written in them.
        requests: sent, those that were sent again included.
        again: of them sent again, after a fault.
        read: tokens read, as far as the endpoint tells.
        written: tokens written, as far as the endpoint tells.
        empty: answers without a word.
        withheld: reason -> questions that have no answer.
    """

    before: int = 0
    read_before: int = 0
    written_before: int = 0
    requests: int = 0
    again: int = 0
    read: int = 0
    written: int = 0
    empty: int = 0
    withheld: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def total(self) -> int:
        """Requests of all attempts."""
        return self.before + self.requests

    def cost(self, price: Price) -> float:
        """US dollars of all attempts, as far as the endpoint tells its tokens."""
        return cost_of(price, self.read_before + self.read, self.written_before + self.written)

    def send(self, most: int | None, *, again: bool) -> bool:
        """Counts a request; whether it may be sent."""
        with self._lock:
            if most is not None and self.total >= most:
                return False
            self.requests += 1
            self.again += again
            return True

    def answer(self, *, read: int = 0, written: int = 0, empty: bool = False) -> None:
        """Counts an answer."""
        with self._lock:
            self.read += read
            self.written += written
            self.empty += empty

    def add(self, other: Counts) -> None:
        """What has been counted elsewhere until now."""
        with self._lock:
            for name in ("requests", "again", "read", "written", "empty"):
                setattr(self, name, getattr(self, name) + getattr(other, name))

    def facts(self) -> dict[str, Any]:
        """The counts by name, for the run record."""
        names = ("requests", "again", "read", "written", "empty", "withheld")
        return {name: getattr(self, name) for name in names}

    def no_answer(self, why: Withheld) -> None:
        """Counts a question that has none."""
        with self._lock:
            self.withheld[why.reason] = self.withheld.get(why.reason, 0) + 1


class Endpoint:
    """Asks, waits where it is told to, asks again where that may help, and counts.

    Args:
        url: where it is, up to and without `/chat/completions`; None is OPENAI_BASE_URL, or OpenAI's.
        model: what it calls the model.
        api: "chat" or "completions".
        key_name: the environment variable that holds the key.
        concurrency: requests under way at once, at most.
        rpm: requests a minute, at most; None for as many as there are.
        timeout: seconds after which an answer is given up.
        max_retries: times that a question is asked again.
        max_requests: requests in all; None for as many as there are.
        price: of its tokens; None where it is not known.
        max_cost: US dollars from which on nothing is sent; None for no limit.

    Attributes:
        url: without what is secret in it.
        counts: so far.

    Raises:
        ConfigError: where the address is none.
        ModelError: where a key is missing.
        MissingExtraError: where the client is not installed.
    """

    def __init__(
        self,
        url: str | None,
        *,
        model: str,
        api: Api,
        key_name: str,
        concurrency: int,
        rpm: float | None,
        timeout: float,
        max_retries: int,
        max_requests: int | None,
        price: Price | None = None,
        max_cost: float | None = None,
    ) -> None:
        self._openai: Any = need("openai", "api")
        self._stamina: Any = need("stamina", "api")
        # Waits would be logged on the terminal, if nobody has set up logging.
        logging.getLogger("stamina").addHandler(logging.NullHandler())
        given = url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        self.url = _shown(given)
        self.model, self.api = model, api
        self.key_name = key_name
        self.has_key = bool(os.environ.get(key_name))
        if not self.has_key and urlsplit(given).hostname == urlsplit(OPENAI).hostname:
            raise ModelError(
                f"{self.url} asks for a key, and {key_name} is not set", fix=self._key()
            )
        self._client: Any = self._openai.OpenAI(
            api_key=os.environ.get(key_name) or "none",
            base_url=given,
            timeout=timeout,
            max_retries=0,  # we ask again ourselves, and count it
        )
        self._timeout = timeout
        self._attempts = max_retries + 1
        self.max_requests = max_requests
        self.price, self.max_cost = price, max_cost
        self.pace = Pace(concurrency, rpm)
        self.counts = Counts()

    def ask(
        self, body: Mapping[str, Any], stop: threading.Event | None = None, *, first: bool = False
    ) -> Any:
        """What the endpoint answers, as the client reads it; it has at least one choice.

        Args:
            body: the fields of the request, without the model.
            stop: set where nobody waits for the answer any more.
            first: whether the question is ours, so that what the server says may be repeated.

        Raises:
            UnseenError: where no further question would be answered either.
            NoAnswer: where this one has none.
            NotTaken: where the endpoint does not take an option of the body.
            Rejected: where it does not take the body.
            Stopped: where `stop` is set.
        """
        stop = stop or threading.Event()
        number = 0

        def again(error: Exception) -> bool | float:
            # The wait that is asked for is everybody's: the pace sees to it.
            return isinstance(error, Again) and (error.wait is None or 0.0)

        try:
            for attempt in self._stamina.retry_context(
                on=again,
                attempts=self._attempts,
                timeout=None,
                wait_initial=_FIRST_WAIT,
                wait_max=_LONGEST_BACKOFF,
            ):
                with attempt:
                    number += 1
                    return self._once(body, stop, first=first, again=number > 1)
        except Again as error:
            raise error.finally_ from None
        msg = "one of the attempts ends it"
        raise AssertionError(msg)

    @property
    def cost(self) -> float | None:
        """US dollars so far, of all attempts; None where the price is not known."""
        return None if self.price is None else self.counts.cost(self.price)

    def models(self) -> list[str]:
        """The names of its models; none where it does not tell."""
        try:
            return [str(one.id) for one in self._client.models.list().data]
        except Exception:  # noqa: BLE001 (whatever it is: it was to help with another fault)
            return []

    def _once(
        self, body: Mapping[str, Any], stop: threading.Event, *, first: bool, again: bool
    ) -> Any:
        asked = self._client.chat.completions if self.api == "chat" else self._client.completions
        # What the client raises holds the request and what the server says of it: it goes no further,
        # not even as the context of what we raise.
        fault: Exception | None = None
        answer = None
        with self.pace.turn(stop):
            if self.max_cost is not None and (self.cost or 0.0) >= self.max_cost:
                raise self._too_dear(self.max_cost)
            if not self.counts.send(self.max_requests, again=again):
                raise self._spent()
            try:
                answer = asked.create(model=self.model, **body)
            except self._openai.OpenAIError as error:
                fault = self._fault(error, body, first=first)
            except UnicodeEncodeError:
                fault = NoAnswer(Withheld.UNSENDABLE)
            except ValueError:  # no JSON, or no text
                fault = self._odd()
        if fault is None and not getattr(answer, "choices", None):
            fault = self._odd()
        if fault is None:
            self.pace.faster()
            return answer
        if isinstance(fault, Again) and (fault.busy or fault.wait is not None):
            self.pace.slower(fault.wait or 0.0)
        raise fault

    def _spent(self) -> BudgetError:
        return BudgetError(
            f"stopped after {self.counts.total:,} requests to {self.url}, as many as may be sent",
            fix="the same command with a larger --max-requests continues: what was answered is kept",
        )

    def _too_dear(self, most: float) -> BudgetError:
        return BudgetError(
            f"stopped after {dollars(self.cost or 0.0)} at {self.url}, of {dollars(most)} that may be spent",
            fix="the same command with a larger --max-cost continues: what was answered is kept",
        )

    # --- what goes wrong ---------------------------------------------------------------------------

    def _fault(self, error: Any, body: Mapping[str, Any], *, first: bool) -> Exception:
        """What an error of the client means for us."""
        client = self._openai
        if isinstance(error, client.APITimeoutError):
            return Again(
                TargetError(
                    f"{self.url} does not answer within {self._timeout:g} seconds, "
                    f"{self._attempts} times",
                    fix=f"--timeout SECONDS, or a smaller --concurrency; {_KEPT}",
                )
            )
        if isinstance(error, client.APIConnectionError):
            cause = type(error.__cause__).__name__ if error.__cause__ else "no connection"
            if first:
                return ModelError(
                    f"nothing answers at {self.url} ({cause})",
                    fix="--base-url URL: is the server up, and the address right? It usually ends in /v1",
                )
            return Again(TargetError(f"{self.url} has broken off ({cause})", fix=_KEPT))
        if not isinstance(error, client.APIStatusError):
            return self._odd()
        said = _said(error)
        if error.status_code == 429:
            return self._busy(error, said)
        if error.status_code in (408, 409) or error.status_code >= 500:
            wait = _retry_after(error)
            return Again(
                TargetError(
                    f"{self.url} answers {error.status_code}, {self._attempts} times", fix=_KEPT
                ),
                wait=None if wait is None or wait > _LONGEST_WAIT else wait,
                busy=error.status_code in (503, 529),
            )
        return self._refused(error, said, body, first=first)

    def _busy(self, error: Any, said: str) -> Exception:
        if _SPENT.search(said):
            return TargetError(
                f"the quota of {self.key_name} at {self.url} is spent", fix=f"add to it; {_KEPT}"
            )
        wait = _retry_after(error)
        if wait is not None and wait > _LONGEST_WAIT:
            return TargetError(
                f"{self.url} asks to wait for {wait:,.0f} seconds", fix=f"wait; {_KEPT}"
            )
        limit = TargetError(
            f"{self.url} answers that it is asked too much (429), {self._attempts} times",
            fix=f"a smaller --concurrency, or a larger --max-retries; {_KEPT}",
        )
        return Again(limit, wait=wait, busy=True)

    def _refused(self, error: Any, said: str, body: Mapping[str, Any], *, first: bool) -> Exception:
        status = error.status_code
        shown = _names(error) + (f": {self._hidden(_told(error))}" if first else "")
        if status == 401:
            why = "refuses the key in" if self.has_key else "asks for a key, and there is none in"
            return ModelError(f"{self.url} {why} {self.key_name}", fix=self._key())
        if status == 404:
            return self._not_found(said, named=error.code == "model_not_found")
        name = _option(error, said, body)
        refused = TargetError(
            f"{self.url} refuses the request ({shown})",
            fix="is this the right --model, and the right --api (chat or completions)?",
        )
        if status in (400, 422) and name is not None:
            return NotTaken(name, refused)
        if status == 413 or (status in (400, 422) and _TOO_LONG.search(said)):
            return NoAnswer(Withheld.TOO_LONG)
        if status in (400, 403) and _FILTERED.search(said):
            return NoAnswer(Withheld.FILTERED)
        if status == 403:
            return ModelError(
                f"the key in {self.key_name} may not use {self.model} at {self.url} ({_names(error)})",
                fix=self._key(),
            )
        if status in (400, 422) and not first:
            return Rejected(refused)
        return refused

    def _not_found(self, said: str, *, named: bool) -> ModelError:
        known = self.models()
        if known and self.model not in known:
            return ModelError(
                f"{self.url} has no model {short(self.model)!r}", fix=suggestion(self.model, known)
            )
        other = "completions" if self.api == "chat" else "chat"
        if named or ("model" in said and not known):
            return ModelError(
                f"{self.url} has no model {short(self.model)!r}", fix="--model openai/NAME"
            )
        what = "/chat/completions" if self.api == "chat" else "/completions"
        return ModelError(
            f"there is no {what} at {self.url}",
            fix=f"--base-url URL, which usually ends in /v1, or --api {other}",
        )

    def _odd(self) -> Again:
        return Again(
            TargetError(
                f"{self.url}: {_ODD}, {self._attempts} times",
                fix=f"is there a proxy, or a page to log in to, before it? {_KEPT}",
            )
        )

    def _key(self) -> str:
        return f"export {self.key_name}=…, or name another variable: --api-key-env NAME"

    def _hidden(self, message: str) -> str:
        """What a server says, in one line, without the key."""
        key = os.environ.get(self.key_name)
        line = " ".join(message.split())
        return short(line.replace(key, "…") if key else line, 300)


def _shown(url: str) -> str:
    """An address without user, password and query.

    Raises:
        ConfigError: where it is no address.
    """
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            "the base URL is no address", fix="--base-url http://localhost:8000/v1, for example"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def _said(error: Any) -> str:
    """Everything that a server says of a fault: to be searched, never to be shown."""
    return " ".join(map(str, (error.code, error.type, error.message, error.response.text)))


def _told(error: Any) -> str:
    """What a server says of a fault of our own question: its sentence, or all it says."""
    body = error.body
    message = body.get("message") or body.get("detail") if isinstance(body, dict) else None
    return str(message or error.response.text or error.message)


def _names(error: Any) -> str:
    """The status, and the names of code and parameter, which hold nothing of the request."""
    parts = [f"HTTP {error.status_code}"]
    for what, value in (("code", error.code or error.type), ("option", error.param)):
        if isinstance(value, str) and _NAME.fullmatch(value):
            parts.append(f"{what} {value}")
    return ", ".join(parts)


def _option(error: Any, said: str, body: Mapping[str, Any]) -> str | None:
    """The option of the body that is not taken, if that is the fault."""
    if not _NOT_TAKEN.search(said):
        return None
    options = [name for name in body if name not in ("messages", "prompt")]
    if error.param in options:
        return str(error.param)
    # The longest first: max_completion_tokens holds no other, but n is in everything.
    named = [name for name in options if re.search(rf"(?<!\w){name}(?!\w)", said)]
    return max(named, key=len) if named else None


def _retry_after(error: Any) -> float | None:
    """Seconds that a server asks to wait, or None: a number, or a date."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return wait if 0 <= wait < float("inf") else None
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
