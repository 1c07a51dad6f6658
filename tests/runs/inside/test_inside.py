"""An audit that looks inside a real model: what it keeps, and what scoring again can do without it."""

from pathlib import Path

import numpy as np
import pytest
import records
import tiny
import torch

import unseen
from unseen.errors import ConfigError

pytestmark = pytest.mark.slow  # whole audits


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> unseen.Audit:
    where = tmp_path_factory.mktemp("inside")
    members, nonmembers = records.sides(where / "data", 26)
    model = tiny.folder(where / "model", dtype=torch.float32)
    return unseen.audit_finetune(
        model=str(model), members=str(members), nonmembers=str(nonmembers), bootstrap=200,
        attacks=("loss", "grad_norm", "activation_probe"), fpr=(0.1,), run_dir=where / "run",
        cache_dir=where / "cache", access="weights", reference="none",
    )  # fmt: skip


def test_gradients_are_kept_and_states_are_not(audited: unseen.Audit) -> None:
    rows = {row.name: row for row in audited.results.attacks}
    assert rows["grad_norm"].n == rows["activation_probe"].n == (26, 26)
    assert rows["grad_norm"].access == "weights"
    kept = {path.name for path in Path(audited.folder).rglob("*.parquet")}
    assert any(name.startswith("gradient_norm-target") for name in kept)
    assert not any("activations" in name for name in kept)


def test_layers_are_shown(audited: unseen.Audit) -> None:
    (found,) = audited.results.layers
    assert [row.layer for row in found.rows] == [0, 1, 2]
    assert all(row.auc.n == (26, 26) for row in found.rows)
    assert "Which layers tell them apart?" in unseen.report_run(audited.folder, "md")


def test_scoring_again_keeps_the_probes_scores_and_says_why_it_can_make_no_others(
    audited: unseen.Audit,
) -> None:
    before = audited.to_pandas()["score.activation_probe"].to_numpy()
    again = unseen.score_run(audited.folder, bootstrap=300)
    assert np.array_equal(again.to_pandas()["score.activation_probe"].to_numpy(), before)
    assert again.results.layers == audited.results.layers
    with pytest.raises(ConfigError) as refused:
        unseen.score_run(audited.folder, "activation_probe[layer=0]")
    assert "needs what no run folder keeps: text could be read back from it" in str(refused.value)
    assert "unseen audit finetune --config" in str(refused.value.fix)
    assert "--keep-tokens" not in str(refused.value.fix)
