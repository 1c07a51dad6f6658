"""Audits of a model behind an endpoint: what is sent, counted, kept and said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoints import TOO_LONG, Bad, Server, fault, said

import unseen
from unseen.cli.main import run
from unseen.errors import BudgetError, ConfigError, PreflightError
from unseen.runs.config import FinetuneAudit
from unseen.targets import endpoint

pytestmark = pytest.mark.slow  # whole audits

pytest.importorskip("openai", reason="the client is not installed (extra api)")

KEY = "sk-secret-0123456789"
N = 14
ATTACK = "samia[samples=2,top_k=0]"


def text(side: str, i: int) -> str:
    words = [f"{side}{i}word{j}" for j in range(6)]
    return f"Record {i} of the {side} side says {' '.join(words)}."


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(endpoint, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(endpoint, "_LONGEST_BACKOFF", 0.02)
    for side in ("inside", "outside"):
        rows = [json.dumps({"text": text(side, i)}) for i in range(N)]
        Path(f"{side}.jsonl").write_text("\n".join(rows))


@pytest.fixture
def server() -> Iterator[Server]:
    """It remembers the one side word by word."""
    known = [text("inside", i) for i in range(N)]

    def answer(body: dict[str, Any]) -> str:
        begun = said(body)
        found = [one for one in known if one.startswith(begun)]
        return found[0][len(begun) :] if found else " and so on"

    with Server(answer).up() as one:
        yield one


def choices(server: Server, **more: Any) -> dict[str, Any]:
    common = {
        "base_url": server.url,
        "api": "completions",
        "members": "inside.jsonl",
        "nonmembers": "outside.jsonl",
        "attacks": [ATTACK],
        "bootstrap": 200,
    }
    return common | more


def flags(server: Server, *more: str) -> list[str]:
    given = choices(server, model="openai/tiny", attacks=ATTACK)
    return [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ] + [*more]


def test_an_audit_of_text_alone(server: Server, tmp_path: Path) -> None:
    result = unseen.audit_finetune("openai/tiny", **choices(server))
    (attack,) = (one for one in result.results.attacks if one.name == ATTACK)
    assert attack.auc.value == 1
    assert attack.n == (N, N)
    assert result.results.access == "text"
    assert result.results.target["url"] == server.url
    about = json.loads((result.folder / "run.json").read_text())
    counts = about["attempts"][0]["endpoint"]
    assert counts["requests"] == len(server.asked) == 1 + 4 + 2 * 2 * N
    assert (counts["read"], counts["written"]) == (7 * len(server.asked), 3 * len(server.asked))
    lengths = [body["max_tokens"] for _, _, body in server.asked]
    assert max(lengths) < 30  # tokens, not characters
    everything = b"".join(
        f.read_bytes() for f in tmp_path.rglob("*") if f.is_file() and f.suffix != ".jsonl"
    )
    assert KEY.encode() not in everything
    for file in result.folder.rglob("*"):
        assert b"inside0word3" not in (file.read_bytes() if file.is_file() else b"")
    n = len(server.asked)
    again = unseen.audit_finetune("openai/tiny", **choices(server))
    assert len(server.asked) == n + 1 + 4  # ours, and the checks: every answer is kept
    assert again.results.attacks == result.results.attacks


def test_what_is_too_long_is_a_reason(server: Server) -> None:
    server.script = [None] * 5 + [TOO_LONG] * 2
    result = unseen.audit_finetune("openai/tiny", **choices(server, concurrency=1))
    (attack,) = (one for one in result.results.attacks if one.name == ATTACK)
    assert sum(attack.n) == 2 * N - 1
    assert attack.unscored == {"the prompt does not fit into the context of the endpoint": 1}


def test_a_budget_holds_for_all_attempts(server: Server, capsys: Any) -> None:
    needed = 2 * 2 * N
    assert run(["audit", "finetune", *flags(server, "--max-requests", "20")]) != 0
    told = capsys.readouterr().err
    assert f"{needed} requests are left to send at least, 1 were sent" in told
    assert f"--max-requests {needed + 2 + 8}" in told  # two starts, and a preflight at most
    assert len(server.asked) == 1
    # As much as the plan needs, and then faults eat it up.
    server.script = [None, *[fault(500)] * 8]
    with pytest.raises(BudgetError, match=f"stopped after {needed + 10} requests"):
        unseen.audit_finetune(
            "openai/tiny", **choices(server, max_requests=needed + 10, max_retries=9)
        )
    runs = list(Path("runs").glob("2*"))
    attempts = json.loads((runs[0] / "run.json").read_text())["attempts"]
    assert sum(one["endpoint"]["requests"] for one in attempts) == len(server.asked) == needed + 10
    assert [one["status"] for one in attempts] == ["stopped", "stopped"]
    done = unseen.audit_finetune("openai/tiny", **choices(server, max_requests=200))
    assert list(Path("runs").glob("2*")) == runs == [done.folder]
    asked = [json.dumps(body) for _, _, body in server.asked]
    of_records = [one for one in asked if "Record" in one and '"max_tokens": 16' not in one]
    # The two draws of a prompt differ by their seed: none that was answered was sent again.
    assert len(of_records) - len(set(of_records)) <= 8


def test_what_it_may_cost_holds_for_all_attempts(server: Server, capsys: Any) -> None:
    price = "100,200"  # of 7 tokens read and 3 written: 13 hundredths of a cent a request
    given = ("--concurrency", "1", "--price", price)
    for most, n_sent in (("0.026", 20), ("0.039", 30)):
        assert run(["audit", "finetune", *flags(server, *given, "--max-cost", most)]) == 12
        told = capsys.readouterr().err
        assert len(server.asked) == n_sent
        assert f"of ${most} that may be spent" in told
    assert run(["audit", "finetune", *flags(server, *given, "--max-cost", "1")]) == 11, (
        "by its words alone"
    )
    assert f"${0.0013 * len(server.asked):.2g}, of all attempts" in capsys.readouterr().err
    assert len(list(Path("runs").glob("2*"))) == 1


def test_a_plan_says_what_it_costs(server: Server, capsys: Any) -> None:
    forecast = unseen.plan("openai/tiny", **choices(server, price=[2, 1e-9]))
    texts = forecast.asked["target"].texts
    assert texts.cost is not None
    assert 0 < texts.cost < 2e-6 * texts.tokens
    assert run(["plan", *flags(server, "--price", "200,200")]) == 0
    assert f"about ${200e-6 * texts.tokens:.2g}" in capsys.readouterr().out


def test_a_plan_takes_as_long_as_the_rate_allows(server: Server) -> None:
    forecast = unseen.plan("openai/tiny", **choices(server, rpm=600))
    time = forecast.asked["target"].texts.time
    assert time.bounds[0] >= 2 * 2 * N / 10


def test_a_plan_counts_before_anything_is_spent(server: Server, capsys: Any) -> None:
    assert run(["plan", *flags(server, "--max-requests", "50")]) == 0
    told = capsys.readouterr().out
    assert f"{2 * 2 * N} requests left to send, of 50 allowed" in told
    assert server.url in told
    assert len(server.asked) <= 3
    assert not Path("runs").exists()


def test_a_model_that_says_nothing_is_found_before(server: Server) -> None:
    server.answer = lambda body: ""
    with pytest.raises(PreflightError, match="nothing comes after 2 questions"):
        unseen.audit_finetune("openai/tiny", **choices(server))
    server.answer = lambda body: {"finish_reason": "length", "text": ""}
    with pytest.raises(PreflightError, match="used up"):
        unseen.audit_finetune("openai/tiny", **choices(server))


def test_another_answer_each_time_is_a_warning(server: Server) -> None:
    server.answer = lambda body: f"{len(server.asked)}"
    result = unseen.audit_finetune("openai/tiny", **choices(server))
    (check,) = (one for one in result.results.checks if one.id == "batch_invariance")
    assert (check.status, check.value) == ("warn", 1.0)


def test_what_says_nothing_of_it_is_refused(server: Server) -> None:
    with pytest.raises(ConfigError, match="--dtype says nothing of an endpoint"):
        unseen.audit_finetune("openai/tiny", **choices(server, dtype="float32"))
    with pytest.raises(ConfigError, match="--base-url is of an endpoint"):
        unseen.audit_finetune("fake/", **choices(server, api="chat"))
    with pytest.raises(ConfigError, match="gives text at most"):
        unseen.audit_finetune("openai/tiny", **choices(server, access="logprob"))
    with pytest.raises(unseen.UnseenError, match=r"samia\[top_k=0\]"):
        unseen.audit_finetune("openai/tiny", **choices(server, attacks=["samia"]))
    with pytest.raises(unseen.UnseenError, match="no attack is left") as told:
        unseen.audit_finetune("openai/tiny", **choices(server, attacks=["default"]))
    assert "--attacks samia[top_k=0]" in str(told.value)
    with pytest.raises(ConfigError, match="has no name"):
        unseen.audit_finetune("openai/", **choices(server))
    assert FinetuneAudit().api == "chat"


def test_one_budget_for_target_and_reference(server: Server) -> None:
    server.models = ("tiny", "base")
    result = unseen.audit_finetune(
        "openai/tiny", **choices(server, reference="openai/base", control="all", max_requests=500)
    )
    about = json.loads((result.folder / "run.json").read_text())
    assert about["attempts"][0]["endpoint"]["requests"] == len(server.asked)
    assert {body["model"] for _, _, body in server.asked} == {"tiny", "base"}


def test_doctor_says_what_it_gives(server: Server, capsys: Any) -> None:
    server.answer = lambda body: f"{said(body)} {body['seed'] if body['temperature'] else 0}"
    found = unseen.doctor("openai/tiny", base_url=server.url, api="completions")
    rows = {row.name: row for row in found.model}
    assert rows["completions"].ok is True
    assert rows["twice the same"].ok is True
    assert rows["seed honoured"].ok is True
    assert "ignored" in rows["generated logprobs"].detail
    assert "ignored" in rows["prompt logprobs"].detail
    assert "ignored" in rows["several answers"].detail
    assert {"gap", "samia[top_k=0]"} <= set(found.usable)
    assert "logprob access" in found.unusable["loss"]
    assert len(server.asked) < 12
    server.answer = said
    found = unseen.doctor("openai/tiny", base_url=server.url)
    (row,) = (row for row in found.model if row.name == "seed honoured")
    assert (row.ok, row.detail[:16]) == (False, "nothing is drawn")
    server.answer = lambda body: f"{len(server.asked)}"
    server.takes = {"max_tokens", "temperature"}
    found = unseen.doctor("openai/tiny", base_url=server.url)
    rows = {row.name: row for row in found.model}
    assert rows["twice the same"].ok is False
    assert rows["seed honoured"].ok is False
    assert rows["generated logprobs"].detail == "refused"
    assert rows["prompt logprobs"].detail == "not offered to chats"
    server.script = [Bad(404, b"", kind="text/plain")]
    assert run(["doctor", "openai/tiny", "--base-url", server.url]) == 2
    assert "--api completions" in capsys.readouterr().out
