from __future__ import annotations

import importlib.metadata
import json
import sys

import broken
import pytest
import tiny

import unseen
from unseen.cli.main import run
from unseen.errors import ConfigError
from unseen.runs import doctor as tested
from unseen.runs.preflight import TITLES
from unseen.targets.access import Access
from unseen.targets.fake import FakeTokenizer


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def rows(found) -> dict:
    return {row.name: row for row in (*found.environment, *found.model)}


def test_without_a_model_the_machine_alone_is_looked_at(tmp_path) -> None:
    found = unseen.doctor()
    assert found.model == ()
    assert found.loaded is None
    by_name = rows(found)
    assert by_name["torch"].detail == importlib.metadata.version("torch")
    assert by_name["cache"].ok is True
    assert "HF_HUB_OFFLINE=1" in by_name["hub"].detail
    assert sorted(file.name for file in tmp_path.iterdir()) == []  # nothing was made


def test_what_is_not_installed_is_a_row(monkeypatch, capsys) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(tested.importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "torch", None)
    found = unseen.doctor("some/model")
    by_name = rows(found)
    assert (by_name["torch"].ok, by_name["torch"].fix) == (False, 'pip install "unseen[hf]"')
    assert by_name["GPU"].ok is None
    assert by_name["model"].ok is False
    assert run(["doctor", "some/model"]) == 0
    assert 'pip install "unseen[hf]"' in capsys.readouterr().out


def test_places_that_cannot_be_written(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    found = rows(unseen.doctor(cache_dir=tmp_path / "file" / "c", runs=tmp_path / "file"))
    assert (found["cache"].ok, found["cache"].fix) == (False, "--cache-dir DIR")
    assert found["runs"].ok is False
    monkeypatch.setattr(tested, "_LITTLE_DISK", 2**80)
    assert rows(unseen.doctor())["cache"].ok is False


def test_more_threads_than_cores(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert rows(unseen.doctor())["cores"].ok is False


def test_a_model_with_everything() -> None:
    target = unseen.FakeTarget(["Mina Okafor lives in Harrow Lane."] * 2)
    found = unseen.doctor(target)
    assert found.unusable == {}
    assert {"loss", "min_k_pp", "reference"} <= set(found.usable)
    assert [check.id for check in found.checks] == list(TITLES)
    assert rows(found)["context"].detail == "8,192 tokens"


def test_a_model_that_gives_less() -> None:
    class Plain(unseen.FakeTarget):
        reference = None

    target = Plain(access=Access.LOGPROB, tokenizer=FakeTokenizer(bos=False, chat=False))
    found = unseen.doctor(target)
    assert "logit access" in found.unusable["min_k_pp"]
    assert "--reference" in found.unusable["reference"]
    by_name = rows(found)
    assert by_name["chat template"].fix is not None
    assert "only where a template writes it" in by_name["beginning of text"].detail
    assert by_name["reference"].ok is None
    text_only = unseen.doctor(unseen.FakeTarget(), access="text")
    assert "loss" in text_only.unusable
    assert {"bag_of_words", "writing", "samia", "gap"} <= set(text_only.usable)


def test_numbers_that_are_wrong_are_found_without_any_record(monkeypatch, capsys) -> None:
    found = unseen.doctor(broken.ByCompany())
    assert [check.id for check in found.checks if check.status == "fail"] == ["batch_invariance"]
    monkeypatch.setattr("unseen.runs.models._fake", lambda _: broken.Zero())
    assert run(["doctor", "fake/x"]) == 11
    assert "log-probability 0" in capsys.readouterr().out


def test_a_real_model(tmp_path, capsys) -> None:
    tiny.folder(tmp_path / "m")
    tiny.folder(tmp_path / "before", seed=1)
    capsys.readouterr()
    assert run(["doctor", "m", "--reference", "before", "--json"]) == 0
    shown = capsys.readouterr()
    found = tested.Diagnosis.model_validate(json.loads(shown.out))
    assert found.unusable == {}
    assert {check.status for check in found.checks} == {"pass"}
    assert rows(found)["reference"].detail == "before"
    assert run(["doctor", "m"]) == 0
    shown = capsys.readouterr()
    for word in ("torch", "cache", "chat template", "attacks", "reference", "512 tokens"):
        assert word in shown.out, word


def test_a_model_that_is_not_there_is_a_row_with_a_fix(capsys) -> None:
    assert run(["doctor", "./gone"]) == 2
    shown = capsys.readouterr()
    assert "no model folder ./gone" in shown.out
    assert "Traceback" not in shown.err
    assert run(["doctor", "./gone", "--acces", "text"]) == 2
    assert "--access" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        unseen.doctor(nothing="x")
