"""Audits of a prompt over HTTP: what is sent behind it, and what of it is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import demos
import pytest
from endpoints import TOO_LONG, Server, fault

import unseen
from unseen.cli.main import run
from unseen.errors import AccessError, BudgetError, ConfigError, PreflightError
from unseen.runs.compare import compare
from unseen.targets import endpoint

pytestmark = pytest.mark.slow  # whole audits

pytest.importorskip("openai", reason="the client is not installed (extra api)")

ATTACKS = ("gap", "repeat[encoder=letters]")
TRIALS = 16
N_CHECKS = 2 * 4
FIRST = 1 + N_CHECKS


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(endpoint, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(endpoint, "_LONGEST_BACKOFF", 0.02)
    demos.template(tmp_path / "sort.txt")
    demos.pool(tmp_path / "pool.jsonl", 60)


@pytest.fixture
def server() -> Iterator[Server]:
    """It goes on as the text before has once gone on."""
    model = unseen.FakeTarget(strength=16.0)

    def answer(body: dict[str, Any]) -> str:
        messages = body.get("messages") or [{"content": body.get("prompt")}]
        text = "\n\n".join(message["content"] for message in messages)
        text = text.replace("Complete the following sentence: ", "Note: ")
        ids = model.tokenizer.encode(text)
        (made,) = model.generate([ids], max_new_tokens=4 * body["max_tokens"])
        return model.tokenizer.decode(made).partition(body.get("stop", "\0"))[0]

    with Server(answer).up() as one:
        yield one


def choices(server: Server, **more: Any) -> dict[str, Any]:
    common = {
        "base_url": server.url,
        "api": "completions",
        "template": "sort.txt",
        "demos": "pool.jsonl",
        "trials": TRIALS,
        "attacks": ATTACKS,
        "bootstrap": 200,
        "fpr": 0.1,
    }
    return common | more


def audit(server: Server, **more: Any) -> unseen.Audit:
    return unseen.audit_prompt("openai/tiny", **choices(server, **more))


def auc(result: unseen.Audit, name: str, kind: str = "attacks") -> float:
    (row,) = (row for row in getattr(result.results, kind) if row.name == name)
    return row.auc.value


@pytest.mark.parametrize("how", [{}, {"api": "chat"}, {"api": "chat", "chat": True}])
def test_a_prompt_is_audited_over_http(server: Server, how: dict[str, Any]) -> None:
    result = audit(server, **how)
    assert auc(result, "repeat[encoder=letters]") > 0.8
    assert 0.2 < auc(result, "repeat[encoder=letters]", "control") < 0.8
    assert result.results.target["url"] == server.url
    about = json.loads((result.folder / "run.json").read_text())
    assert about["attempts"][0]["endpoint"]["requests"] == len(server.asked)
    # Both cases of a trial, two attacks, behind the prompt and behind an empty one.
    assert len(server.asked) == FIRST + 2 * 2 * 2 * TRIALS
    lines = (Path("pool.jsonl")).read_text().splitlines()
    shown = result.results.prompt.tokens
    assert shown[2] < 60  # tokens, and no characters
    for file in result.folder.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not any(json.loads(line)["text"].encode() in content for line in lines)
    n = len(server.asked)
    assert auc(audit(server, **how), "gap") == auc(result, "gap")
    assert len(server.asked) == n + FIRST


def test_messages_are_messages(server: Server) -> None:
    audit(server, api="chat", as_turns=True, attacks=["gap"], control="none")
    roles = [[m["role"] for m in body["messages"]] for _, _, body in server.asked[1:]]
    assert {tuple(some) for some in roles} == {("system", "user", "assistant", "user")}


def test_a_budget_counts_what_is_sent_again(server: Server) -> None:
    needed = 2 * 2 * TRIALS
    with pytest.raises(BudgetError, match=f"{needed} questions are left"):
        audit(server, attacks=["gap"], max_requests=needed)
    assert len(server.asked) == 1
    server.script = [None, *[fault(500)] * 20]
    most = needed + FIRST + 10
    with pytest.raises(BudgetError, match="stopped"):
        audit(server, attacks=["gap"], max_requests=most, max_retries=50)
    assert len(server.asked) <= most
    before = len(server.asked)
    result = audit(server, attacks=["gap"], max_requests=200)
    about = json.loads((result.folder / "run.json").read_text())
    sent = [one["endpoint"]["requests"] for one in about["attempts"]]
    assert (len(sent), sum(sent)) == (3, len(server.asked))
    # All that was answered before the end was kept.
    assert len(server.asked) - before <= needed + 1 - (before - 1 - FIRST - 20)


def test_the_number_that_a_refusal_names_is_enough(server: Server) -> None:
    with pytest.raises(BudgetError) as refused:
        audit(server, attacks=["gap"], max_requests=10)
    (most,) = re.findall(r"--max-requests (\d+),", refused.value.fix)
    audit(server, attacks=["gap"], max_requests=int(most))
    assert len(server.asked) == int(most)


def test_a_plan_counts_before_anything_is_spent(server: Server, capsys: Any) -> None:
    words = [
        word
        for name in ("base_url", "api", "template", "demos", "trials")
        for word in (f"--{name.replace('_', '-')}", str(choices(server)[name]))
    ]
    words += ["--attacks", ",".join(ATTACKS), "--max-requests", "50"]
    assert run(["plan", "prompt", "--model", "openai/tiny", *words]) == 0
    told = capsys.readouterr().out
    assert f"{2 * 2 * 2 * TRIALS} requests left to send, of 50 allowed" in told
    assert len(server.asked) <= 3


def test_two_dates_are_compared_and_what_was_remembered_is_said(server: Server) -> None:
    first = audit(server, run_dir="january", cache_dir="one")
    later = audit(server, run_dir="june", cache_dir="other")
    assert not any("older" in note for note in compare([first.folder, later.folder]).notes)
    n = len(server.asked)
    same = audit(server, run_dir="july", cache_dir="one", attacks=["gap"])
    assert len(server.asked) == n + FIRST
    (note,) = (one for one in compare([first.folder, same.folder]).notes if "older" in one)
    assert note.startswith(
        f"run 2: {2 * 2 * TRIALS} answers of the endpoint are older than the run"
    )


def test_what_does_not_fit_is_a_reason_and_no_end(server: Server) -> None:
    server.script = [None] * FIRST + [TOO_LONG] * 3
    result = audit(server, attacks=["gap"], control="none", concurrency=1)
    (row,) = (row for row in result.results.attacks if row.name == "gap")
    assert row.unscored == {"the prompt does not fit into the context of the endpoint": 3}
    (check,) = (one for one in result.results.checks if one.id == "prompts_fit")
    assert (check.status, check.detail[:9]) == ("warn", "3 of 32 p")
    assert sum(result.results.prompt.n_too_long) == 3


def test_a_model_that_thinks_first_is_found_before(server: Server) -> None:
    server.answer = lambda body: {"finish_reason": "length", "text": ""}
    with pytest.raises(PreflightError, match="none of 4 questions is answered: the tokens"):
        audit(server)
    server.answer = lambda body: f"{len(server.asked)}"
    result = audit(server, attacks=["gap"])
    (check,) = (one for one in result.results.checks if one.id == "answers")
    assert check.status == "warn"


def test_what_says_nothing_of_it_is_refused(server: Server, capsys: Any) -> None:
    with pytest.raises(ConfigError, match="--dtype says nothing of an endpoint"):
        audit(server, dtype="float32")
    with pytest.raises(ConfigError, match="--base-url is of an endpoint"):
        unseen.audit_prompt("fake/copies", **choices(server))
    with pytest.raises(AccessError, match="takes no fewest"):
        audit(server, attacks=["repeat[encoder=letters,fewest=20]"])
    words = ["--base-url", server.url, "--template", "sort.txt", "--demos", "pool.jsonl"]
    assert run(["audit", "prompt", "--model", "openai/other", *words]) == 2
    assert "has no model 'other'" in capsys.readouterr().err
