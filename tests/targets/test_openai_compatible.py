"""An endpoint over real HTTP: a server on this machine that misbehaves on command."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.utils import formatdate
from typing import Any

import pytest
from endpoints import BUSY, TOO_LONG, Bad, Server, fault, said

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import (
    AccessError,
    BudgetError,
    ConfigError,
    MissingExtraError,
    ModelError,
    TargetError,
    UnscorableError,
)
from unseen.scoring.generation import EachAlone, Generation
from unseen.scoring.store import Store
from unseen.targets import endpoint
from unseen.targets.access import Access, LogprobTarget, Withheld
from unseen.targets.limited import LimitedTarget
from unseen.types import Batch, Prompt, Sampling, Turn

pytest.importorskip("openai", reason="the client is not installed (extra api)")
pytest.importorskip("stamina", reason="the client is not installed (extra api)")
from unseen.targets.openai_compatible import OpenAITarget

SECRET = "sk-secret-0123456789"
PRIVATE = "Mina Okafor owes 412.70"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(endpoint, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(endpoint, "_LONGEST_BACKOFF", 0.02)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    with ExitStack() as servers:
        yield lambda *args, **how: servers.enter_context(Server(*args, **how).up())


def target(server: Server, **how: Any) -> OpenAITarget:
    return OpenAITarget("tiny", base_url=server.url, **({"timeout": 5} | how))


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def texts(one: OpenAITarget, *prompts: str, **how: Any) -> list[str]:
    made = one.generate([ids(p) for p in prompts], **({"max_new_tokens": 8} | how))
    return [one.tokenizer.decode(answer) for answer in made]


def test_is_a_target_of_the_lowest_rung(serve: Any) -> None:
    one = target(serve())
    assert isinstance(one, LogprobTarget)
    assert isinstance(one, EachAlone)
    assert one.access is Access.TEXT
    with pytest.raises(AccessError, match="logprob"):
        one.execute(Batch((), ()))
    with pytest.raises(AccessError, match="label"):
        one.top_token([[1]])
    with pytest.raises(ConfigError, match="text alone"):
        target(serve(), access="logprob")
    assert one.describe() == {
        "provider": "openai",
        "model": "tiny",
        "url": one.endpoint.url,
        "api": "chat",
        "access": "text",
        "system_fingerprint": "v1",
    }


def test_a_chat_is_sent_as_messages(serve: Any) -> None:
    server = serve()
    one = target(server)
    encoder = RecordEncoder(one.tokenizer, Layout(), limit=one.max_length)
    turns = (
        Turn("system", "Be brief.\n"),
        Turn("user", "1 + 1?"),
        Turn("assistant", "2"),
        Turn("user", " And 東京 😀? "),
    )
    made = one.generate([encoder.prompt(turns)], max_new_tokens=9)
    assert one.tokenizer.decode(made[0]) == " AND 東京 😀? "
    path, headers, body = server.asked[-1]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert body["messages"] == [{"role": t.role, "content": t.content} for t in turns]
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (9, 0.0, 0)
    assert "top_p" not in body
    assert "max_completion_tokens" not in body


def test_a_text_is_one_message_of_the_user_or_a_completion(serve: Any) -> None:
    server = serve()
    made = texts(target(server), "Question: a\nAnswer:", stop="\n\n")
    assert made == ["QUESTION: A\nANSWER:"]
    assert server.asked[-1][2]["messages"] == [{"role": "user", "content": "Question: a\nAnswer:"}]
    assert server.asked[-1][2]["stop"] == "\n\n"
    one = target(server, api="completions")
    assert one.tokenizer.chat_template is None
    assert texts(one, "Question: a\nAnswer:") == ["QUESTION: A\nANSWER:"]
    path, _, body = server.asked[-1]
    assert (path, body["prompt"]) == ("/v1/completions", "Question: a\nAnswer:")


def test_a_chat_does_not_go_on_with_a_begun_answer(serve: Any) -> None:
    server = serve()
    one = target(server)
    encoder = RecordEncoder(one.tokenizer, Layout(), limit=one.max_length)
    prompts = [encoder.prompt((Turn("user", "Hello"),), "Good m"), encoder.prompt((), "Good m")]
    assert one.generate(prompts, max_new_tokens=4) == [[Withheld.BEGUN], list(ids("GOOD M"))]
    assert one.counts.withheld == {Withheld.BEGUN.reason: 1}
    assert len(server.asked) == 2  # one of them our own


def test_answers_keep_their_order_and_are_asked_at_once(serve: Any) -> None:
    def slow_first(body: dict[str, Any]) -> str:
        time.sleep(0.2 if said(body) == "p0" else 0.01)
        return said(body) + "!"

    server = serve(slow_first)
    one = target(server, concurrency=4)
    asked = [f"p{i}" for i in range(12)]
    assert texts(one, *asked, "p3") == [f"{p}!" for p in (*asked, "p3")]
    assert 1 < server.most <= 4
    assert len(server.asked) == 13  # ours, and each prompt once
    first = next(iter(one.each([Prompt(ids(p), 8) for p in asked])))
    assert first[0].ids != ids("p0")


def test_what_is_drawn_has_a_seed_of_its_own(serve: Any) -> None:
    server = serve()
    one = target(server, seed=3)
    warm = Sampling(0.7, top_p=0.9, seed=5)
    one.generate([ids("a")] * 3, max_new_tokens=4, sampling=warm, numbers=[0, 1, 1])
    bodies = [body for _, _, body in server.asked[1:]]
    assert len(bodies) == 2
    assert {(b["temperature"], b["top_p"]) for b in bodies} == {(0.7, 0.9)}
    seeds = {b["seed"] for b in bodies}
    assert len(seeds) == 2
    assert all(0 <= seed < 2**31 for seed in seeds)
    one.generate([ids("b")], max_new_tokens=4, sampling=warm, numbers=[1])
    assert server.asked[-1][2]["seed"] in seeds
    for sampling, says in (
        (Sampling(1.0, top_k=50), "50 likeliest"),
        (Sampling(fewest=20), "20 tokens"),
    ):
        with pytest.raises(ConfigError, match=says):
            one.generate([ids("a")], max_new_tokens=4, sampling=sampling)


def test_options_that_are_not_taken(serve: Any) -> None:
    server = serve(takes={"max_completion_tokens", "temperature"})
    one = target(server)
    assert texts(one, "a") == ["A"]
    assert set(server.asked[-1][2]) == {"model", "messages", "max_completion_tokens", "temperature"}
    assert one.describe()["seed"] == "not taken"
    assert texts(one, "a\nb", "c\nd", stop="\n") == ["A", "C"]  # we cut, where it does not
    assert "stop" not in server.asked[-1][2]
    with pytest.raises(ModelError, match="takes no temperature"):
        target(serve(takes={"max_tokens", "seed"}))


def test_retries_after_as_long_as_it_is_asked_to(serve: Any) -> None:
    server = serve()
    one = target(server)
    for wait, header in ((0.3, {"retry-after-ms": "300"}), (1, {"retry-after": "1"})):
        server.script = [fault(429, "slow down", headers=header)]
        started = time.monotonic()
        assert texts(one, f"a{wait}") == [f"A{wait}"]
        assert wait <= time.monotonic() - started < wait + 2
    server.script = [fault(429, headers={"retry-after": formatdate(time.time() - 5, usegmt=True)})]
    assert texts(one, "b") == ["B"]
    assert (one.counts.requests, one.counts.again) == (7, 3)
    server.script = [fault(429, headers={"retry-after": "86400"})]
    with pytest.raises(TargetError, match="86,400 seconds"):
        texts(one, "c")


@pytest.mark.parametrize(
    "bad",
    [
        BUSY,
        fault(500),
        fault(503, headers={"retry-after": "0"}),
        Bad(body={"id": "x", "choices": [{}]}, halfway=True),
        Bad(body=b'{"id": "x", "choi'),
        Bad(body=b"<html>log in</html>", kind="text/html"),
        Bad(body={"id": "x", "choices": []}),
        Bad(body={"detail": "?"}),
        Bad(500, b"\xff\xfe", kind="text/plain"),
    ],
)
def test_what_may_pass_is_tried_again(serve: Any, bad: Bad) -> None:
    server = serve()
    one = target(server, max_retries=2)
    server.script = [bad, bad]
    assert texts(one, "a") == ["A"]
    assert one.counts.again == 2
    server.script = [bad] * 3
    with pytest.raises(TargetError, match=r"3 times|broken off") as told:
        texts(one, PRIVATE)
    assert "the same command continues" in str(told.value)
    assert PRIVATE not in str(told.value)


def test_a_slow_answer_is_given_up(serve: Any) -> None:
    server = serve()
    one = target(server, timeout=0.3, max_retries=1)
    server.script = [Bad(delay=1)]
    assert texts(one, "a") == ["A"]
    server.script = [Bad(delay=1)] * 2
    with pytest.raises(TargetError, match=r"within 0.3 seconds, 2 times"):
        texts(one, "b")


def test_a_complaint_halves_what_is_asked_at_once(serve: Any) -> None:
    def answer(body: dict[str, Any]) -> str:
        time.sleep(0.01)
        return "x"

    server = serve(answer)
    one = target(server, concurrency=8, max_retries=8)
    server.script = [BUSY] * 6
    texts(one, *(f"p{i}" for i in range(8)))
    assert one.endpoint.pace.allowed < 8
    texts(one, *(f"q{i}" for i in range(60)))
    assert one.endpoint.pace.allowed == 8


def test_a_prompt_that_cannot_be_answered_ends_nothing(serve: Any) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return {
            "filtered": {"finish_reason": "content_filter", "text": "He"},
            "thinks": {"finish_reason": "length", "text": ""},
            "refuses": {"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"},
            "empty": {"finish_reason": "stop", "text": ""},
            "null": {"finish_reason": "stop", "message": {"content": None}},
            "half": {"finish_reason": "stop", "text": "a\ud83d"},
        }.get(said(body), "fine")

    server = serve(answer)
    one = target(server, concurrency=1)
    asked = ["filtered", "thinks", "refuses", "empty", "null", "half", "ok"]
    assert one.generate([ids(p) for p in (*asked, "\ud83d")], max_new_tokens=4) == [
        [Withheld.FILTERED],
        [Withheld.USED_UP],
        [Withheld.REFUSED],
        [],
        [],
        list(ids("a?")),
        list(ids("fine")),
        [Withheld.UNSENDABLE],
    ]
    assert one.counts.empty == 2
    for bad, why in (
        (TOO_LONG, Withheld.TOO_LONG),
        (fault(413, "too large"), Withheld.TOO_LONG),
        (
            fault(400, "the request exceeds the available context size", type="exceed_context"),
            Withheld.TOO_LONG,
        ),
        (fault(400, "The response was filtered", code="content_filter"), Withheld.FILTERED),
    ):
        server.script = [bad, None]
        long, short = one.generate([ids(f"x{why}{bad.status}"), ids("y")], max_new_tokens=4)
        assert (long, short) == ([why], list(ids("fine")))


def test_a_question_that_is_rejected_while_others_are_answered_is_left_out(serve: Any) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return fault(400, f"what is {PRIVATE}?") if PRIVATE in said(body) else "fine"

    server = serve(answer)
    asked = [
        ids(text) for text in (f"{PRIVATE} 0", "a", f"{PRIVATE} 1", *"bcdef", f"{PRIVATE} 2", "g")
    ]
    right = [
        [Withheld.REJECTED] if PRIVATE in "".join(map(chr, p)) else list(ids("fine")) for p in asked
    ]
    one = target(server, concurrency=1)
    assert one.generate(asked, max_new_tokens=4) == right
    assert one.counts.withheld == {Withheld.REJECTED.reason: 3}
    # Our own question is asked before, and after the first two: then enough were answered.
    assert len(server.asked) == one.counts.total == len(asked) + 3

    wholly = [ids(f"{PRIVATE} {i}") for i in range(30)]
    with pytest.raises(TargetError, match=r"refuses the request"):
        target(server, concurrency=1).generate(wholly, max_new_tokens=4)


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (fault(401, f"Incorrect API key provided: {SECRET}"), ModelError, "refuses the key"),
        (fault(403, "no access"), ModelError, "may not use tiny"),
        (fault(429, "x", code="insufficient_quota"), TargetError, "quota"),
        (fault(400, f"what is {PRIVATE}?", code="bad_thing"), TargetError, "code bad_thing"),
        (fault(422, f"temperature: unexpected {PRIVATE}"), TargetError, "HTTP 422"),
        (Bad(404, b"not found", kind="text/plain"), ModelError, "no /chat/completions"),
        (
            fault(404, "it does not exist", code="model_not_found"),
            ModelError,
            "has no model 'tiny'",
        ),
    ],
)
def test_what_will_not_pass_ends_the_run(serve: Any, bad: Bad, kind: type, says: str) -> None:
    server = serve()
    one = target(server, concurrency=1)
    server.script = [
        None,
        bad,
        bad,
    ]  # our own question, asked again to see whether others are answered
    answers = one.each([Prompt(ids(f"p{i} {PRIVATE}"), 4) for i in range(9)])
    assert next(answers)[0].ids == ids(f"p0 {PRIVATE}")
    with pytest.raises(kind, match=says) as told:
        next(answers)
    assert len(server.asked) == 3 + (bad.status == 400)  # nothing is asked after it
    everything = str(told.value) + repr(told.value.__cause__) + repr(told.value.__context__)
    assert SECRET not in everything
    assert PRIVATE not in str(told.value)
    assert told.value.fix is not None


def test_what_is_wrong_is_said_before_anything_is_sent(serve: Any, monkeypatch: Any) -> None:
    server = serve(models=("tiny-chat",))
    with pytest.raises(ModelError, match="no model 'tiny'") as told:
        target(server)
    assert "did you mean 'tiny-chat'" in str(told.value)
    with pytest.raises(ModelError, match=r"nothing answers at http://127\.0\.0\.1:9/v1") as told:
        OpenAITarget("tiny", base_url="http://127.0.0.1:9/v1")
    assert "--base-url" in str(told.value)
    for url in ("localhost:8000", "http://", "http://host:port/v1", "ftp://host"):
        with pytest.raises(ConfigError, match="no address"):
            OpenAITarget("tiny", base_url=url)
    with pytest.raises(ConfigError, match="got rpm=0"):
        target(server, rpm=0)
    server.script = [fault(400, f"strange {SECRET} thing", code="odd")]
    with pytest.raises(TargetError, match="strange … thing"):
        target(server)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="OPENAI_API_KEY is not set"):
        OpenAITarget("gpt")
    monkeypatch.setenv("OTHER_KEY", "other")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    OpenAITarget("tiny-chat", api_key_env="OTHER_KEY")
    assert server.asked[-1][1]["authorization"] == "Bearer other"
    server.script = [fault(401)]
    with pytest.raises(ModelError, match="there is none in OPENAI_API_KEY"):
        OpenAITarget("tiny-chat")


def test_no_secret_is_told(serve: Any, caplog: Any) -> None:
    server = serve()
    address = server.url.replace("http://", "http://user:geheim@") + "?key=geheim"
    with caplog.at_level(logging.DEBUG):
        one = OpenAITarget("tiny", base_url=server.url)
        server.script = [BUSY]
        texts(one, "a")
    assert SECRET not in caplog.text
    assert endpoint._shown(address) == server.url
    assert SECRET not in repr((one.describe(), one.fingerprint, one.name))


def test_a_budget_is_never_exceeded(serve: Any) -> None:
    server = serve()
    one = target(server, concurrency=4, max_requests=7)
    server.script = [fault(500), fault(500)]
    answers = one.each([Prompt(ids(f"p{i}"), 4) for i in range(40)])
    kept = [next(answers) for _ in range(7 - 1 - 2)]  # without our own, and the two that failed
    with pytest.raises(BudgetError, match="stopped after 7 requests") as told:
        next(answers)
    assert "--max-requests" in str(told.value)
    assert len(server.asked) == 7 == one.counts.requests
    assert all(one.tokenizer.decode(answer).startswith("P") for _, answer in kept)


def test_what_it_may_cost_is_exceeded_by_what_is_under_way_at_most(serve: Any) -> None:
    server = serve()  # 7 tokens read and 3 written, each time
    how = {"price": (100, 200), "max_cost": 0.005}  # 13 hundredths of a cent
    for n in (1, 3):
        one = target(server, concurrency=n, **how)
        answers = one.each([Prompt(ids(f"p{i}"), 4) for i in range(40)])
        with pytest.raises(
            BudgetError, match=r"stopped after \$0\.\d+ at .*, of \$0\.005 that"
        ) as told:
            list(answers)
        assert "--max-cost" in str(told.value)
        assert 4 <= one.counts.requests <= 3 + n
        assert one.endpoint.cost == pytest.approx(0.0013 * one.counts.requests)
    for wrong in ((), (1,), (1, -1), (1, math.inf), (1, 2, 3)):
        with pytest.raises(ConfigError, match="price") as refused:
            target(server, price=wrong, max_cost=1)
        assert "--price READ,WRITTEN" in str(refused.value)
    server.script = [Bad(body={"choices": [{"message": {"content": "Red"}}]})]
    with pytest.raises(ModelError, match="does not tell how many tokens") as told:
        target(server, **how)
    assert "--max-requests" in str(told.value)


def test_what_was_answered_is_kept_and_never_asked_again(serve: Any) -> None:
    server = serve()
    prompts = [Prompt(ids(f"p{i}"), 3 + i % 5) for i in range(30)]
    with Store() as store:
        first = Generation(target(server, max_requests=12), store)
        with pytest.raises(BudgetError):
            first.ensure(prompts)
        second = Generation(target(server), store)
        second.ensure(prompts)
        answers = [second.answer(prompt) for prompt in prompts]
    assert answers == [ids(f"P{i}") for i in range(30)]  # not cut: the tokens are the model's
    sent = [said(body) for _, _, body in server.asked]
    assert sorted(sent) == sorted([*(f"p{i}" for i in range(30)), *["Name a colour."] * 2])
    assert (second.n_stored, second.n_asked) == (11, 19)


def test_a_reason_is_kept_like_an_answer(serve: Any) -> None:
    server = serve()
    with Store() as store:
        one = Generation(target(server, concurrency=1), store)
        server.script = [TOO_LONG]
        one.ensure([Prompt(ids("a"), 3)])
        again = Generation(target(server), store)
        again.ensure([Prompt(ids("a"), 3)])
        with pytest.raises(UnscorableError, match="does not fit into the context"):
            again.answer(Prompt(ids("a"), 3))
    assert len(server.asked) == 3


def test_fingerprint_follows_what_changes_answers(serve: Any) -> None:
    server, other = serve(), serve(version="v2")
    prints = [
        target(server).fingerprint,
        target(server, seed=1).fingerprint,
        target(server, api="completions").fingerprint,
        target(other).fingerprint,
        target(serve(version=None)).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert target(server, concurrency=1, timeout=9, max_retries=1).fingerprint == prints[0]
    limited = LimitedTarget(target(server), Access.TEXT)
    assert limited.generate([ids("a")], max_new_tokens=2) == [list(ids("A"))]


def test_without_the_client_it_is_said_how_to_install_it(monkeypatch: Any) -> None:
    for module in ("openai", "stamina"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError) as told:
                OpenAITarget("tiny", base_url="http://127.0.0.1:9/v1")
            assert told.value.fix == 'pip install "unseen[api]"'
