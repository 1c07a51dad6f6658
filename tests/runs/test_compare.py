from __future__ import annotations

import json
from pathlib import Path

import folders
import numpy as np
import pytest

import unseen
from unseen.cli.main import run as command
from unseen.errors import ConfigError, StoreError
from unseen.metrics.compare import paired_differences
from unseen.metrics.slices import holm
from unseen.report.comparison import facts, notes, render, rows, sentences
from unseen.runs.compare import compare

N = 200


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """`before` leaks, `after` leaks less, `like` leaks as `before` does; all on the same records."""
    where = tmp_path_factory.mktemp("runs")
    for name, distance, seed in (("before", 1.5, 1), ("after", 0.5, 2), ("like", 1.5, 3)):
        scores, member = folders.binormal(N, distance, seed)
        words, _ = folders.binormal(N, 0.0, 9)
        other, _ = folders.binormal(N, distance, seed + 20)
        folders.write(
            where / name, {"loss": scores, "other": other, "words": words}, member,
            blind=["words"], target={"model": name},
        )  # fmt: skip
    return where


def verdicts(comparison) -> dict[tuple[str, str], str]:
    return {(one.attack, one.metric): one.verdict for one in comparison.changes}


def test_less_leakage_is_found_and_the_reverse_is_more(runs) -> None:
    there = compare([runs / "before", runs / "after"])
    assert set(verdicts(there).values()) == {"lower leakage"}
    assert set(verdicts(there)) == {
        (attack, metric)
        for attack in ("loss", "other")
        for metric in ("auc", "tpr@fpr=0.05", "tpr@fpr=0.1")
    }, "no blind baseline"
    assert there.paired == ((N, N),)
    back = compare([runs / "after", runs / "before"])
    assert set(verdicts(back).values()) == {"higher leakage"}
    for one, other in zip(there.changes, back.changes, strict=True):
        assert one.difference.value == -other.difference.value
        assert one.difference.ci[0] == pytest.approx(-other.difference.ci[1])
        assert one.first == other.second


def test_what_is_alike_cannot_be_told_apart(runs) -> None:
    assert set(verdicts(compare([runs / "before", runs / "like"])).values()) == {
        "cannot be told apart"
    }


def test_a_run_with_itself(runs) -> None:
    found = compare([runs / "before", runs / "before"])
    assert found.differs == ()
    for one in found.changes:
        assert one.difference.value == 0
        assert one.difference.ci[0] < 0 < one.difference.ci[1]
        assert (one.p, one.p_holm) == (1, 1)
        assert one.verdict == "cannot be told apart"


def test_numbers_are_those_of_the_reports_and_of_the_formula(runs) -> None:
    found = compare([runs / "before", runs / "after"])
    sides = [json.loads((runs / name / "results.json").read_text()) for name in ("before", "after")]
    one = found.changes[0]
    for number, results in zip((one.first, one.second), sides, strict=True):
        assert number.model_dump(mode="json") == results["attacks"][0]["auc"]
    order = np.array(sorted(range(2 * N), key=lambda at: f"r{at}"))
    (first, member), (second, _) = folders.binormal(N, 1.5, 1), folders.binormal(N, 0.5, 2)
    again = paired_differences(
        first[order], second[order], member[order], rng=np.random.default_rng([0, 20]),
        fprs=(0.05, 0.1), draws=200,
    )  # fmt: skip
    assert [one.difference.ci for one in found.changes[:3]] == [
        (one.difference.low, one.difference.high) for one in again
    ]
    assert [one.p_holm for one in found.changes] == list(holm([one.p for one in found.changes]))


def test_several_runs_are_each_compared_with_the_first(runs) -> None:
    found = compare([runs / name for name in ("before", "after", "like")])
    assert [one.run for one in found.changes] == [1] * 6 + [2] * 6
    assert [one.p_holm for one in found.changes] == list(holm([one.p for one in found.changes]))
    assert len(sentences(found)) == 2


def test_the_order_of_the_records_does_not_matter(runs, tmp_path) -> None:
    order = np.random.default_rng(0).permutation(2 * N)
    scores, member = folders.binormal(N, 0.5, 2)
    mixed = folders.write(
        tmp_path / "mixed", {"loss": scores[order]}, member[order], ids=[f"r{at}" for at in order]
    )
    plain, other = (compare([runs / "before", run]) for run in (runs / "after", mixed))
    assert plain.changes[0].difference == other.changes[0].difference


# --- what is not alike --------------------------------------------------------------------------


def made(path: Path, **more) -> Path:
    scores, member = folders.binormal(N, 0.5, 2)
    given = {"scores": {"loss": scores}, "member": member} | more
    return folders.write(path, **given)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hashes": ("other", None)}, "members come from different files"),
        ({"hashes": (None, "other")}, "non-members come from different files"),
        ({"scenario": "canary"}, "different kinds"),
        ({"verdict": "invalid"}, "evidence of run 2 is invalid"),
        ({"ids": [f"r{at + 10}" for at in range(2 * N)]}, "20 records are judged in one"),
    ],
)
def test_unlike_runs_are_refused_unless_forced(runs, tmp_path, more, words) -> None:
    if "ids" in more:  # the ids move by ten, so membership has to move with them
        more["member"] = np.arange(10, 2 * N + 10) < N
        more["scores"] = {"loss": folders.binormal(N, 0.5, 2)[0]}
    other = made(tmp_path / "other", **more)
    with pytest.raises(ConfigError, match=words) as caught:
        compare([runs / "before", other])
    assert "--force" in caught.value.fix
    found = compare([runs / "before", other], force=True)
    assert any(words in note and "although" in note for note in found.notes)
    assert found.paired == ((N - 10, N) if "ids" in more else (N, N),)


def test_some_things_cannot_be_forced(runs, tmp_path) -> None:
    scores, member = folders.binormal(N, 0.5, 2)
    cases = {
        "no record in common": {"ids": [f"x{at}" for at in range(2 * N)]},
        "members in one of run 1 and run 2, and non-members": {"member": ~member},
        "other is not in run 2": {"scores": {"zlib": scores}},
        "expected at least 10": {"unscored": {"loss": [f"r{at}" for at in range(N - 5)]}},
    }
    for at, (words, more) in enumerate(cases.items()):
        with pytest.raises(ConfigError, match=words):
            compare([runs / "before", made(tmp_path / str(at), **more)], force=True)
    with pytest.raises(ConfigError, match="two or more"):
        compare([runs / "before"])


def test_what_differs_is_said_first(runs, tmp_path) -> None:
    other = made(tmp_path / "other", config={"seed": 3, "loss_on": "all", "run_dir": "elsewhere"})
    found = compare([runs / "before", other])
    differs = {one.what: one.values for one in found.differs}
    assert differs["seed"] == ("0", "3")
    assert differs["attacks"] == ("loss, other", "loss")
    assert differs["setting loss_on"] == ("–", "all")
    assert differs["target model"] == ("before", "m")
    assert "setting run_dir" not in differs
    assert "members" in found.same
    assert "other is not in run 2" in found.notes


def test_caution_is_said(runs, tmp_path) -> None:
    for verdict, words in (("caution", "with caution"), (None, "was not checked")):
        other = made(tmp_path / str(verdict), verdict=verdict)
        assert any(words in note for note in compare([runs / "before", other]).notes)


def test_an_auc_below_chance_is_no_lower_leakage(tmp_path, runs) -> None:
    scores, _ = folders.binormal(N, -2.0, 2)
    found = compare([runs / "before", made(tmp_path / "down", scores={"loss": scores})])
    change = found.changes[0]
    assert change.verdict == "not comparable"
    assert "members score lower than non-members in run 2" in change.note
    assert found.changes[1].verdict == "lower leakage", "the TPR is what it is"


def test_records_without_a_score_in_one_of_them_are_left_out(runs, tmp_path) -> None:
    other = made(tmp_path / "other", unscored={"loss": [f"r{at}" for at in range(30)]})
    found = compare([runs / "before", other])
    assert found.changes[0].difference.n == (N - 30, N)
    assert found.changes[0].first.n == (N - 30, N)
    assert any("loss: 30 records without a score" in note for note in found.notes)


def test_clusters_of_either_run_are_kept_together(tmp_path) -> None:
    """A pairs even with odd neighbours, B with the next: together all hang together in tens."""
    scores, member = folders.binormal(N, 1.0, 1)
    later, _ = folders.binormal(N, 0.5, 2)
    pairs = [at // 2 for at in range(2 * N)]
    shifted = [at // 10 * 10 + (at % 10 + 1) // 2 for at in range(2 * N)]
    tens = [at // 10 for at in range(2 * N)]

    def against(first, second):
        paths = [
            folders.write(tmp_path / f"{name}-{first}-{second}", {"loss": one}, member, clusters=c)
            for name, one, c in (
                ("a", scores, groups[first]), ("b", later, groups[second]),
            )
        ]  # fmt: skip
        return compare(paths).changes[0]

    groups = {"none": None, "pairs": pairs, "shifted": shifted, "tens": tens}
    both, whole = against("pairs", "shifted"), against("tens", "tens")
    assert both.difference == whole.difference
    assert against("none", "tens").difference == whole.difference
    assert against("none", "none").difference != whole.difference


def test_damaged_runs_are_refused(runs, tmp_path) -> None:
    other = made(tmp_path / "other")
    (other / "results.json").write_text("{}")
    with pytest.raises(StoreError, match="not as the run left it"):
        compare([runs / "before", other])


# --- for people ---------------------------------------------------------------------------------


def test_rows_and_sentences(runs) -> None:
    found = compare([runs / "before", runs / "after"])
    line = rows(found, 1)[0]
    assert line[0] == "AUC (loss)"
    assert line[3].startswith("−0.")
    assert line[6] == "lower leakage"
    assert rows(found, 1)[1][0] == "TPR @ 5% FPR (loss)"
    assert "pp" in rows(found, 1)[1][3]
    (sentence,) = sentences(found)
    assert sentence.startswith(
        "run 2 against run 1: lower leakage in 6 of 6 numbers. The strongest"
    )
    assert any(name == "differs" for name, _ in facts(found))
    assert any("80% chance" in note for note in notes(found))
    itself = compare([runs / "before", runs / "before"])
    assert ("differs", "nothing that numbers depend on") in facts(itself)
    assert rows(itself, 1)[0][3].startswith("0.000 [−")


def test_markdown_is_safe(runs, tmp_path) -> None:
    other = made(tmp_path / "<b>|x", target={"model": "<script>|"})
    text = render(compare([runs / "before", other]))
    assert "<script>" not in text
    assert "<b>" not in text
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count(" | ") for line in table}) == 1


def test_the_command(runs, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    assert command(["compare", "before", "after", "--markdown", str(tmp_path / "c.md")]) == 0
    shown = capsys.readouterr()
    for word in ("same", "differs", "target model: before → after", "lower leakage", "FINDING"):
        assert word in shown.out, word
    assert (tmp_path / "c.md").read_text().startswith("# Leakage of runs compared")
    assert command(["compare", "before", "after", "like", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["changes"]) == 12
    for words, said in (
        (["compare", "before"], "OTHER is missing"),
        (["compare", "before", "nowhere"], "no run folder"),
        (["compare", "before", "after", "--markdown", "c.pdf"], "no report of kind '.pdf'"),
    ):
        assert command(words) == 2
        assert said in capsys.readouterr().err


def test_from_python(runs, tmp_path) -> None:
    compared = unseen.compare_runs(runs / "before", runs / "after")
    path = compared.report(tmp_path / "c.json")
    assert json.loads(path.read_text())["changes"]
    from unseen.api import Audit
    from unseen.runs.folder import RunFolder

    after = Audit(runs / "after", RunFolder(runs / "after").read_results())
    assert after.compare(runs / "before").comparison == compared.comparison
    assert after.gate({"auc": 0.9}).outcome == "pass"
