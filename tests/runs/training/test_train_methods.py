"""Trainings by method, as `unseen train` runs them: the folder says how, and the audit loads what it left."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import records
import tiny
import torch

import unseen
from unseen.errors import ConfigError
from unseen.targets.huggingface import HFTarget


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    where = tmp_path_factory.mktemp("methods")
    tiny.folder(where / "base", dtype=torch.float32)
    members, nonmembers = records.sides(where, 15)
    choices: dict[str, Any] = {
        "model": str(where / "base"),
        "members": str(members),
        "nonmembers": str(nonmembers),
        "epochs": 1,
    }
    return SimpleNamespace(where=where, choices=choices)


@pytest.mark.parametrize("method", ["prefix", "prompt", "ia3"])
def test_an_adapter_of_any_kind_is_left_for_the_audit(made, method: str, tmp_path: Path) -> None:
    run = unseen.train(
        **made.choices, method=method, virtual_tokens=4, accumulate=3, out=tmp_path / "run"
    )
    assert run.about["config"]["method"] == method
    assert HFTarget(run.model).describe()["adapter"] == str(run.model)


def test_a_private_training_says_what_it_spent(made, tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed (extra dp)")
    run = unseen.train(
        **made.choices,
        method="lora",
        noise_multiplier=1.5,
        accountant="rdp",
        batch_size=5,
        out=tmp_path / "run",
    )
    spent = run.about["privacy"]
    assert spent["noise_multiplier"] == 1.5
    assert (spent["sample_rate"], spent["steps"]) == (pytest.approx(1 / 3), run.about["steps"])
    assert 0 < spent["epsilon"] < 10
    with pytest.raises(ConfigError, match="single records"):
        unseen.train(**made.choices, method="ia3", epsilon=8.0, out=tmp_path / "other")


@pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed (extra qlora)",
)
def test_qlora_is_audited_on_its_quantised_base(made, tmp_path: Path) -> None:
    run = unseen.train(**made.choices, method="qlora", bits=4, out=tmp_path / "run")
    target = HFTarget(run.model)
    assert target.describe()["bits"] == "4"
    assert target.without_adapter().fingerprint.endswith("-4bit")
