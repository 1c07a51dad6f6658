from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import folders
import numpy as np
import pytest
import records
from scipy.stats import norm

import unseen
from unseen.cli.main import run as command
from unseen.errors import ConfigError, GateError, UnknownNameError
from unseen.metrics.interval import auc_interval, tpr_interval
from unseen.runs.gate import GateRow, decide, gate, needed, worst_of
from unseen.runs.results import Number

# --- three values -------------------------------------------------------------------------------


def test_pass_fail_or_neither() -> None:
    assert decide([0.4, 0.5], [0.5, 0.6], 0.6) == "pass"
    assert decide([0.4, 0.61], [0.5, 0.7], 0.6) == "fail"
    assert decide([0.4, 0.6], [0.5, 0.7], 0.6) == "inconclusive"
    assert worst_of(["pass", "fail", "inconclusive"]) == "fail"
    assert worst_of(["pass", "inconclusive"]) == "inconclusive"
    assert worst_of(["pass"]) == "pass"


def row(value, low, high, n=100):
    number = Number(value=value, ci=(low, high), confidence=0.95, method="m", n=(n, n))
    return GateRow(attack="a", number=number, sure=low)


def test_how_many_records_would_decide() -> None:
    assert needed([row(0.5, 0.4, 0.6)], 0.55, 0.95, 0.95) == (400, 400), "half as wide: four times"
    assert needed([row(0.6, 0.5, 0.7)], 0.55, 0.95, 0.95) == (400, 400)
    assert needed([row(0.5, 0.4, 0.6), row(0.5, 0.45, 0.53)], 0.55, 0.95, 0.95) == (400, 400)
    assert needed([row(0.55, 0.4, 0.6)], 0.55, 0.95, 0.95) is None
    corrected = needed([row(0.6, 0.5, 0.7)], 0.55, 0.95, 0.995)
    assert corrected[0] > 400, "failing is corrected for all tests"


# --- runs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Runs of 200 records a side: `leaky` with a true AUC of 0.86, `clean` with 0.5."""
    where = tmp_path_factory.mktemp("runs")
    for name, distance in (("leaky", 1.5), ("clean", 0.0)):
        weak, member = folders.binormal(200, distance / 2, 1)
        strong, _ = folders.binormal(200, distance, 2)
        words, _ = folders.binormal(200, 3.0, 3)
        folders.write(
            where / name, {"weak": weak, "strong": strong, "words": words}, member, blind=["words"]
        )
    return where


def test_a_leak_fails_and_none_passes(runs) -> None:
    leaky, clean = (gate(runs / name, {"auc": 0.65}) for name in ("leaky", "clean"))
    assert (leaky.outcome, clean.outcome) == ("fail", "pass")
    assert leaky.checks[0].worst.attack == "strong"
    assert [one.attack for one in clean.checks[0].rows] == ["weak", "strong"], "no blind baseline"
    assert clean.tests == 2


def test_numbers_are_those_of_the_report(runs) -> None:
    results = json.loads((runs / "leaky" / "results.json").read_text())
    found = gate(
        runs / "leaky", {"auc": 0.9, "tpr@fpr=0.1": 0.9, "advantage": 0.9, "headline": 0.9}
    )
    strong = next(one for one in results["attacks"] if one["name"] == "strong")
    numbers = {
        check.metric: next(one.number.value for one in check.rows if one.attack != "weak")
        for check in found.checks
    }
    assert numbers == {
        "auc": strong["auc"]["value"],
        "tpr@fpr=0.1": strong["tpr_at_fpr"][1]["tpr"]["value"],
        "advantage": strong["advantage"]["value"],
        "headline": results["headline"]["tpr"]["value"],
    }


def test_lower_ends_are_corrected_and_upper_ends_are_not(runs) -> None:
    check = gate(runs / "leaky", {"auc": 0.6, "advantage": 0.05}).checks[0]
    for one in check.rows:
        assert one.sure < one.number.ci[0]
    scores, member = folders.binormal(200, 1.5, 2)
    again = auc_interval(
        scores[member], scores[~member], rng=np.random.default_rng([0, 4]), draws=200,
        confidence=1 - 0.05 / 4,
    )  # fmt: skip
    strong = next(one for one in check.rows if one.attack == "strong")
    assert strong.sure == again.low, "the same draws as in the report, at another level"


def test_one_attack_another_rate_and_another_level(runs) -> None:
    weak = gate(runs / "leaky", {"auc@weak": 0.9})
    assert [one.attack for one in weak.checks[0].rows] == ["weak"]
    found = gate(runs / "leaky", {"tpr@fpr=0.2": 0.9}, confidence=0.99).checks[0]
    scores, member = folders.binormal(200, 1.5, 2)
    again = tpr_interval(scores[member], scores[~member], 0.2, confidence=0.99)
    strong = next(one for one in found.rows if one.attack == "strong")
    assert strong.number.ci == (again.low, again.high)
    with pytest.raises(UnknownNameError, match="attack of this run"):
        gate(runs / "leaky", {"auc@words": 0.6})
    with pytest.raises(ConfigError, match=r"above 0\.5 and below 1"):
        gate(runs / "leaky", {"auc": 0.6}, confidence=95)


def test_the_headline_at_another_level_is_the_same_finding(runs) -> None:
    results = json.loads((runs / "leaky" / "results.json").read_text())
    for more in ([], ["tpr@fpr=0.2=0.5"]):  # another rate must not move the headline
        found = gate(runs / "leaky", ["headline=0.11", *more], confidence=0.99).checks[0]
        number = found.rows[0].number
        assert number.value == results["headline"]["tpr"]["value"]
        assert number.ci[0] < results["headline"]["tpr"]["ci"][0]


def test_several_limits_fail_wins(runs) -> None:
    found = gate(runs / "leaky", ["auc=0.99", "auc@strong=0.85", "advantage=0.1"])
    assert [one.outcome for one in found.checks] == ["pass", "inconclusive", "fail"]
    assert found.outcome == "fail"
    assert gate(runs / "leaky", ["auc=0.99", "auc@strong=0.85"]).outcome == "inconclusive"


def test_what_is_not_decided_says_what_would(runs) -> None:
    check = gate(runs / "leaky", ["auc@strong=0.85"]).checks[0]
    assert check.needs is None or min(check.needs) > 200
    assert "members" in check.reason or "too close" in check.reason
    small = gate(runs / "leaky", ["tpr@fpr=0.001=0.05"]).checks[0]
    assert small.outcome == "inconclusive"
    assert "200 non-members cannot resolve" in small.reason
    assert "1,000" in small.reason
    assert "10,000 to be reliable" in small.reason
    assert "0.005" in small.reason


def test_invalid_evidence_decides_nothing(tmp_path) -> None:
    scores, member = folders.binormal(60, 2.0, 0)
    run = folders.write(tmp_path / "run", {"loss": scores}, member, verdict="invalid")
    for found in gate(run, {"auc": 0.6, "headline": 0.6}).checks:
        assert found.outcome == "inconclusive"
        assert "blind: it differs" in found.reason


def test_caution_and_unchecked_evidence_are_said(tmp_path) -> None:
    scores, member = folders.binormal(60, 2.0, 0)
    for verdict, words in (("caution", "caution: blind"), (None, "was not checked")):
        run = folders.write(tmp_path / str(verdict), {"loss": scores}, member, verdict=verdict)
        assert words in gate(run, {"auc": 0.99}).notes[0]


def test_attacks_that_could_not_be_judged(tmp_path) -> None:
    scores, member = folders.binormal(60, 0.0, 0)
    out = [f"r{i}" for i in range(55)]
    given = {"loss": scores, "other": scores}
    some = folders.write(tmp_path / "some", given, member, unscored={"other": out})
    found = gate(some, {"auc": 0.8})
    assert found.outcome == "pass"
    assert "other is not judged" in found.notes[0]
    none = folders.write(tmp_path / "none", given, member, unscored={"other": out, "loss": out})
    found = gate(none, {"auc": 0.8, "headline": 0.9})
    assert found.outcome == "inconclusive"
    assert "no attack could be judged" in found.checks[0].reason
    assert "no headline" in found.checks[1].reason


def test_a_limit_of_the_headline_below_its_own_rate(runs) -> None:
    with pytest.raises(ConfigError, match="not above the false-positive rate"):
        gate(runs / "leaky", {"headline": 0.01})


def test_the_gate_of_the_configuration(tmp_path) -> None:
    scores, member = folders.binormal(60, 0.0, 0)
    run = folders.write(tmp_path / "run", {"loss": scores}, member, config={"gate": ["auc=0.8"]})
    assert gate(run).checks[0].limit == 0.8
    bare = folders.write(tmp_path / "bare", {"loss": scores}, member)
    with pytest.raises(ConfigError, match="no limit is named"):
        gate(bare)


def test_python_stops_on_anything_but_a_pass(runs) -> None:
    unseen.gate_run(runs / "clean", {"auc": 0.65}).raise_for_status()
    with pytest.raises(
        GateError, match=r"gate fail: auc is not known to be at most 0\.65"
    ) as caught:
        unseen.gate_run(runs / "leaky", "auc=0.65").raise_for_status()
    assert caught.value.outcome == "fail"


# --- the command --------------------------------------------------------------------------------


def test_exit_codes_and_lines(runs, capsys, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for run, limit, code, word in (
        ("clean", "auc=0.65", 0, "PASSED"),
        ("leaky", "auc=0.65", 10, "FAILED"),
        ("leaky", "tpr@fpr=0.001=0.05", 11, "INCONCLUSIVE"),
    ):
        assert command(["gate", run, "--max", limit]) == code
        assert f"GATE {word}" in capsys.readouterr().out
    assert command(["gate", "clean", "--max", "auc"]) == 2
    assert "holds no limit" in capsys.readouterr().err
    assert command(["gate", "clean"]) == 2
    assert command(["gate", "nowhere", "--max", "auc=0.6"]) == 2


def test_files_for_builds(runs, tmp_path, capsys, monkeypatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    words = ["gate", str(runs / "leaky"), "--max", "auc=0.65,tpr@fpr=0.001=0.05,advantage=0.999"]
    assert command([*words, "--junit", str(tmp_path / "j.xml"), "--json"]) == 10
    shown = capsys.readouterr()
    assert json.loads(shown.out)["outcome"] == "fail"
    assert "GATE FAILED" in shown.err
    suite = ET.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [case.get("name") for case in suite] == [
        "auc <= 0.65", "tpr@fpr=0.001 <= 0.05", "advantage <= 0.999",
    ]  # fmt: skip
    text = summary.read_text()
    assert text.startswith("before\n### Leakage gate: FAILED")
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 5
    assert command([*words, "--junit", str(tmp_path / "no" / "j.xml")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_an_audit_with_a_gate(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members, nonmembers = (path.name for path in records.sides(tmp_path, 40))
    usual = ["audit", "finetune", "--members", members, "--nonmembers", nonmembers,
             "--attacks", "loss", "--bootstrap", "200", "--split-origin", "random"]  # fmt: skip
    Path("unseen.yaml").write_text(f"model: fake/{members}\ngate:\n  auc: 0.7\n  headline: 0.9\n")
    assert command([*usual, "--run-dir", "mine"]) == 10
    assert "fail          auc <= 0.7" in capsys.readouterr().out
    assert command(["gate", "mine"]) == 10
    capsys.readouterr()
    monkeypatch.setenv("UNSEEN_GATE", "auc=0.9999")
    assert command([*usual, "--run-dir", "mine", "--json"]) in (0, 11)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["run"]["id"] == "mine"
    assert "auc <= 0.9999" in shown.err
    assert command([*usual, "--gate", "acu=1"]) == 2
    assert "acu: expected auc" in capsys.readouterr().err
    Path("unseen.yaml").write_text(f"model: fake/{members}\ngate:\n  acu: 0.7\n")
    monkeypatch.delenv("UNSEEN_GATE")
    assert command(usual) == 2
    assert "gate in unseen.yaml" in capsys.readouterr().err


# --- by simulation ------------------------------------------------------------------------------


def outcomes(limit, *, auc=0.5, n=100, attacks=1, runs=200, corrected=True):
    """How often a gate at `limit` passes, fails and abstains; all attacks have the same true AUC."""
    found = []
    distance = norm.ppf(auc) * np.sqrt(2)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        pool = np.sqrt(0.5) * rng.normal(size=(1, 2 * n)) + np.sqrt(0.5) * rng.normal(
            size=(attacks, 2 * n)
        )
        member = rng.permutation(2 * n) < n
        sure, high = [], []
        for scores in pool:
            sides = (scores[member] + distance, scores[~member])
            for level, ends in ((0.95, high), (1 - 0.05 / (attacks if corrected else 1), sure)):
                one = auc_interval(
                    *sides, rng=np.random.default_rng(seed), draws=100, confidence=level
                )
                ends.append(one.high if ends is high else one.low)
        found.append(decide(sure, high, limit))
    return {word: found.count(word) / runs for word in ("pass", "fail", "inconclusive")}


ALLOWED = 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
"""5 %, and three standard errors of 200 runs."""


def test_shuffled_labels_over_200_seeds() -> None:
    """Nothing leaks: never failed by more than 5 %, and passed where the margin is wide enough."""
    tight, wide = outcomes(0.51), outcomes(0.65)
    assert tight["fail"] <= ALLOWED
    assert tight["inconclusive"] >= 0.9, "100 records a side cannot show an AUC below 0.51"
    assert wide["fail"] == 0
    assert wide["pass"] >= 0.9
    assert outcomes(0.6, attacks=5, runs=60)["fail"] <= ALLOWED


def test_at_the_limit_itself_both_errors_are_rare() -> None:
    at = outcomes(0.6, auc=0.6)
    assert at["pass"] <= ALLOWED
    assert at["fail"] <= ALLOWED


def test_a_planted_leak_is_found() -> None:
    assert outcomes(0.6, auc=0.8, runs=60)["fail"] >= 0.95


@pytest.mark.slow
def test_the_correction_is_needed_and_is_enough() -> None:
    """Eight attacks at the limit itself: one of them seems to be above more often than 5 %."""
    corrected, not_corrected = (
        outcomes(0.6, auc=0.6, attacks=8, corrected=one) for one in (True, False)
    )
    assert corrected["fail"] <= 0.05
    assert not_corrected["fail"] > corrected["fail"]
    assert corrected["pass"] <= 0.05
