"""The command line as a process of its own: what it imports, and what survives when it is killed."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import demos
import pytest
import records

pytestmark = pytest.mark.slow


HEAVY = ("torch", "transformers", "sklearn", "scipy", "pandas", "matplotlib", "pyarrow", "datasets")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_is_cheap() -> None:
    found = python(
        "import sys, unseen\n"
        f"print([name for name in {HEAVY!r} + ('numpy', 'pydantic') if name in sys.modules])"
    )
    assert found.strip() == "[]"


def test_help_is_cheap() -> None:
    found = python(
        "import sys, contextlib, io\n"
        "from unseen.cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()): assert run(['--help']) == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert found.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert (
        python("import unseen; print(all(hasattr(unseen, n) for n in unseen.__all__))") == "True\n"
    )


def command(folder: Path, run_dir: Path) -> list[str]:
    return [
        sys.executable, "-m", "unseen", "audit", "finetune",
        "--model", f"fake/{folder / 'members.jsonl'}",
        "--members", str(folder / "members.jsonl"),
        "--nonmembers", str(folder / "nonmembers.jsonl"),
        "--attacks", "loss", "--attacks", "min_k_pp", "--attacks", "recall", "--attacks", "icp_sp",
        "--bootstrap", "200", "--fpr", "0.1", "--batch-tokens", "4000",
        "--run-dir", str(run_dir / "run"), "--cache-dir", str(run_dir / "cache"),
    ]  # fmt: skip


def command_of_prompt(folder: Path, run_dir: Path) -> list[str]:
    return [
        sys.executable, "-m", "unseen", "audit", "prompt", "--model", "fake/copies",
        "--template", str(demos.template(folder / "sort.txt")),
        "--demos", str(demos.pool(folder / "pool.jsonl", 80)),
        "--attacks", "gap,repeat[encoder=letters]", "--trials", "40", "--shots", "1,4",
        "--bootstrap", "200", "--fpr", "0.1", "--batch-tokens", "1000",
        "--run-dir", str(run_dir / "run"), "--cache-dir", str(run_dir / "cache"),
    ]  # fmt: skip


def result_without_times(run_dir: Path) -> dict:
    results = json.loads((run_dir / "run" / "results.json").read_text())
    for name in ("id", "created", "seconds"):
        del results["run"][name]
    return results


@pytest.mark.parametrize(
    ("command", "kept"),
    [(command, "answers"), (command_of_prompt, "texts")],
    ids=["data", "prompt"],
)
def test_killed_at_any_moment_the_same_command_continues(
    tmp_path: Path, command: Callable[[Path, Path], list[str]], kept: str
) -> None:
    records.sides(tmp_path / "data", 40)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    whole = command(tmp_path / "data", tmp_path / "whole")
    subprocess.run(whole, check=True, capture_output=True, env=environment)
    seconds = time.monotonic() - begun
    rng = random.Random(0)
    killed = 0
    broken = command(tmp_path / "data", tmp_path / "broken")
    store = tmp_path / "broken" / "cache" / "answers.sqlite"
    progress = []
    for _ in range(20):
        process = subprocess.Popen(
            broken, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # A later attempt has less left to do, so moments are drawn from the first half.
        try:
            process.wait(timeout=rng.uniform(0.05, 0.6) * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        if store.exists():
            with sqlite3.connect(store) as db:
                tables = db.execute("SELECT name FROM sqlite_master").fetchall()
                if (kept,) in tables:
                    progress.append(db.execute(f"SELECT COUNT(*) FROM {kept}").fetchone()[0])
    last = subprocess.run(broken, capture_output=True, env=environment, check=False)
    assert last.returncode == 0, last.stderr.decode()
    assert killed >= 5
    assert progress == sorted(progress)
    assert result_without_times(tmp_path / "whole") == result_without_times(tmp_path / "broken")
    with sqlite3.connect(store) as db:
        n = db.execute(f"SELECT COUNT(*) FROM {kept}").fetchone()[0]
        most = db.execute("SELECT MAX(times_scored) FROM answers").fetchone()[0]
    with sqlite3.connect(tmp_path / "whole" / "cache" / "answers.sqlite") as db:
        assert db.execute(f"SELECT COUNT(*) FROM {kept}").fetchone()[0] == n
    assert most in (None, 1)


ANY = [["ls", "attacks"], ["schema"], ["--help"], ["audit", "finetune", "--help"]]


def shell(args: list[str], redirection: str) -> subprocess.CompletedProcess[str]:
    words = shlex.join([sys.executable, "-m", "unseen", *args])
    return subprocess.run(
        ["sh", "-c", f"{words} {redirection}"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("args", ANY, ids=" ".join)
@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written_is_one_message(args: list[str], redirection: str) -> None:
    done = shell(args, redirection)
    assert done.returncode == 2
    assert done.stderr.startswith("error[store]")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
def test_notes_that_cannot_be_written_are_lost(redirection: str) -> None:
    done = shell(["ls", "attacks"], redirection)
    assert (done.returncode, done.stderr) == (0, "")
    assert "min_k" in done.stdout
    assert shell(["evaluate", "none.csv"], redirection).returncode == 2
    assert shell(["evaluate", "none.csv"], f">&- {redirection}").returncode == 2


def test_few_characters_are_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unseen", "ls", "--help"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_says_that_the_same_command_continues(
    tmp_path: Path, number: int, code: int
) -> None:
    records.sides(tmp_path / "data", 40)
    run_dir = tmp_path / "mine"
    process = subprocess.Popen(
        command(tmp_path / "data", run_dir),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell starts what runs in the background with Ctrl-C ignored; this must not be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    while not (run_dir / "run" / "run.json").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, shown = process.communicate()
    assert process.returncode == code
    assert shown.endswith("interrupted: the same command continues\n")
    assert "Traceback" not in shown
