"""`unseen report`: rendered again from the folder, or refused in one message."""

from __future__ import annotations

import json

import pytest
import reports
import yaml

import unseen
from unseen.cli.main import run as command
from unseen.errors import ConfigError


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return reports.folder(tmp_path / "r", text=True)


def test_html_is_written_into_the_folder_and_sealed(run, capsys) -> None:
    assert command(["report", "r"]) == 0
    assert capsys.readouterr().out == "r/report.html\n"
    page = (run.path / "report.html").read_text()
    assert reports.SENTENCE in page
    assert "secret" not in page
    assert run.altered() == []
    assert command(["report", "r"]) == 0
    assert (run.path / "report.html").read_text() == page


def test_other_formats_are_printed(run, capsys) -> None:
    assert command(["report", "r", "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("# Membership audit")
    assert command(["report", "r", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == "1.0"
    assert command(["report", "r", "--format", "modelcard"]) == 0
    shown = capsys.readouterr().out
    assert yaml.safe_load(shown.split("---")[1])["model-index"]
    assert run.altered() == []


def test_the_ending_says_the_format(run, tmp_path, capsys) -> None:
    for name, begin in (("a.html", "<!DOCTYPE"), ("a.md", "# "), ("a.json", "{")):
        assert command(["report", "r", "--out", name]) == 0
        assert (tmp_path / name).read_text().lstrip().startswith(begin)
    assert capsys.readouterr().out == ""


def test_text_is_revealed_into_another_file_alone(run, tmp_path, capsys) -> None:
    assert command(["report", "r", "--reveal", "--out", "open.html"]) == 0
    assert "secret of 3" in (tmp_path / "open.html").read_text()
    assert command(["report", "r", "--reveal"]) == 2
    assert "--out FILE.html" in capsys.readouterr().err
    assert command(["report", "r", "--reveal", "--format", "md", "--out", "a.md"]) == 2
    assert command(["report", "r", "--reveal", "--format", "md"]) == 2
    reports.folder(tmp_path / "redacted")
    assert command(["report", "redacted", "--reveal", "--out", "b.html"]) == 2
    assert "holds no text" in capsys.readouterr().err


BROKEN = {
    "no run": (lambda run: None, "nothing", "no run folder"),
    "unfinished": (
        lambda run: reports.change(run, "run.json", status="running"), "r", "not finished",
    ),
    "changed": (
        lambda run: (run.path / "results.json").write_text("{}"), "r", "results.json was changed",
    ),
    "newer": (
        lambda run: reports.change(run, "results.json", schema_version="2.0"), "r", "schema 2.0",
    ),
    "unsealed": (lambda run: run.unsealed(), "r", "manifest"),
    "no scores": (
        lambda run: (run.path / "records.parquet").unlink(), "r", "records.parquet is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("more", [[], ["--format", "md"]])
def test_what_is_no_finished_run_is_refused(case, more, run, capsys) -> None:
    spoil, name, words = BROKEN[case]
    spoil(run)
    assert command(["report", name, *more]) == 2
    shown = capsys.readouterr()
    assert words in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_unknown_formats_and_unwritable_files_are_explained(run, capsys) -> None:
    assert command(["report", "r", "--format", "pdf"]) == 2
    assert "format" in capsys.readouterr().err
    assert command(["report", "r", "--out", "no/such/folder/a.html"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_from_python(run, tmp_path) -> None:
    assert reports.SENTENCE in unseen.report_run(run.path)
    assert unseen.report_run(run.path, "md").startswith("# ")
    with pytest.raises(ConfigError, match="unknown format"):
        unseen.report_run(run.path, "pdf")
    audit = unseen.Audit(run.path, run.read_results())
    assert reports.SENTENCE in audit.report(tmp_path / "x.html").read_text()
    with pytest.raises(ConfigError, match=r"\.pdf"):
        audit.report(tmp_path / "x.pdf")


def test_a_folder_that_must_not_change_is_reported_elsewhere(run, monkeypatch, capsys) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert command(["report", "r"]) == 2
    assert "unseen report r --out FILE.html" in " ".join(capsys.readouterr().err.split())
    assert not (run.path / "report.html").exists()
    assert command(["report", "r", "--out", "a.html"]) == 0
