"""A defence is judged against who does not know of it, and who does, beside what it costs."""

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import demos
import numpy as np
import pyarrow as pa
import pytest

from unseen.attacks.base import Known, score_each
from unseen.metrics.advantage import best_threshold
from unseen.metrics.crossfit import fitted_threshold
from unseen.runs.answers import answers_file
from unseen.runs.config import configure_statistics
from unseen.runs.judge import Judge
from unseen.runs.prompt.audit import audit_prompt
from unseen.runs.prompt.config import PromptAudit
from unseen.runs.prompt.defended import Seen, defence, fixed_scores
from unseen.runs.prompt.ready import ready
from unseen.runs.rescore import rescore
from unseen.runs.results import AttackResult, Defence, Results
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.verify import verify
from unseen.scoring.store import Store
from unseen.signals.answered import Answer, Answered
from unseen.signals.base import Observations
from unseen.targets.access import Access
from unseen.types import Scores

pytestmark = pytest.mark.slow  # whole audits

N = 60
IDS = tuple(f"c{i:02d}" for i in range(N))
MEMBER = np.arange(N) % 2 == 0
SIGNAL = Answered()


@dataclass(frozen=True)
class Learner:
    """Scores a value by how much nearer it is to the mean of known members."""

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "none"
    fitted: ClassVar[bool] = True

    def signals(self):
        return (SIGNAL,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        values = known.observations.values[SIGNAL]
        means = [
            np.mean([values[i].right for i, m in zip(known.observations.ids, known.member, strict=True) if m == side])
            for side in (True, False)
        ]  # fmt: skip
        return score_each(
            audited,
            lambda id_: (
                abs(audited.get(SIGNAL, id_).right - means[1])
                - abs(audited.get(SIGNAL, id_).right - means[0])
            ),
        )


def seen(values: np.ndarray) -> Observations:
    return Observations(
        IDS, {SIGNAL: {i: Answer(v, 1) for i, v in zip(IDS, values.tolist(), strict=True)}}
    )


def judge() -> Judge:
    choices = configure_statistics(fpr=(0.1,), bootstrap=200)
    clusters = tuple(i // 2 for i in range(N))
    return Judge(choices, Subjects(IDS, MEMBER, clusters))


def test_who_does_not_know_of_a_defence_has_learned_from_other_trials_without_it() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=N) + 2 * MEMBER, rng.normal(size=N) - 1 * MEMBER
    one, attack = judge(), Learner()
    label = "learner"
    known = Seen(seen(before), {label: one.score(attack, seen(before))})
    defended = Seen(seen(after), {label: one.score(attack, seen(after))})
    found = fixed_scores(one, (attack,), known, defended)[label]
    folds = one._fit_folds
    for i, id_ in enumerate(IDS):
        others = folds != folds[i]
        inside, outside = (before[others & side].mean() for side in (MEMBER, ~MEMBER))
        right = abs(after[i] - outside) - abs(after[i] - inside)
        assert found.values[found.ids.index(id_)] == pytest.approx(right)
    assert not np.allclose(found.values, defended.scores[label].values)
    scored = Scored(defended.scores, fixed={label: found})
    _, read = Subjects.from_table(pa.table(one.table(scored)))
    assert read.fixed[label].ids == found.ids, "a run keeps them, to be judged again"
    np.testing.assert_array_equal(read.fixed[label].values, found.values)


def test_thresholds_of_both_attackers_equal_a_slow_loop() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=N) + 2 * MEMBER, rng.normal(size=N) + MEMBER + 0.8
    one = judge()
    scores = [{"x": Scores(IDS, values)} for values in (before, after)]
    about = Defence(name="n", defense="d", shots=1, position="last", fpr=None)
    row = AttackResult(name="x", kind="attack", n=(30, 30))
    blind = AttackResult(name="y", kind="blind", n=(30, 30))
    made = defence(about, one, (row, blind), scores[0], scores[1], scores[1])
    (attack,) = made.attacks
    assert made.fpr == 0.1

    def slow(values: np.ndarray, chosen_on: np.ndarray) -> tuple[float, float, float]:
        best, flagged = np.zeros(N, bool), np.zeros(N, bool)
        for i in range(N):
            other = one.folds != one.folds[i]
            inside, outside = chosen_on[other & MEMBER], chosen_on[other & ~MEMBER]
            best[i] = values[i] >= best_threshold(inside, outside)
            flagged[i] = values[i] >= fitted_threshold(outside, 0.1)
        return (
            best[MEMBER].mean() - best[~MEMBER].mean(),
            flagged[MEMBER].mean(),
            flagged[~MEMBER].mean(),
        )

    for attacker, right in (
        (attack.before, slow(before, before)),
        (attack.fixed, slow(after, before)),
        (attack.recalibrated, slow(after, after)),
    ):
        found = (attacker.advantage.value, attacker.tpr.value, attacker.fpr.value)
        assert found == pytest.approx(right)
        assert attacker.auc.n == (30, 30)
    assert attack.fixed.fpr.value > attack.recalibrated.fpr.value
    assert attack.fixed.auc == attack.recalibrated.auc


def test_a_record_without_a_score_before_or_after_is_left_out() -> None:
    one = judge()
    values = np.random.default_rng(2).normal(size=N)
    less = Scores(IDS[:-4], values[:-4], dict.fromkeys(IDS[-4:], "none"))
    about = Defence(name="n", defense="d", shots=1, position="last", fpr=None)
    row = AttackResult(name="x", kind="attack", n=(30, 30))
    full = {"x": Scores(IDS, values)}
    (attack,) = defence(about, one, (row,), full, {"x": less}, {"x": less}).attacks
    assert attack.before.auc.n == (30, 30)
    assert attack.fixed.auc.n == attack.recalibrated.auc.n == (28, 28)
    nobody = {"x": Scores((), np.array([]), dict.fromkeys(IDS, "none"))}
    (attack,) = defence(about, one, (row,), full, nobody, nobody).attacks
    assert attack.fixed.note == "no records of one side have a score"


# --- whole audits ---------------------------------------------------------------------------------

DP = "dp_demonstrations[m=1,n=1,sigma=0.001,delta=0.001,public=False,private=1,longest=12]"
DEFENSES = ("instruction", "rewrite_filter[fewest=2,longest=12]", DP)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("defended")
    demos.pool(place / "pool.jsonl")
    demos.template(place / "sort.txt")
    return place


def config(place: Path, name: str, **choices: object) -> PromptAudit:
    return PromptAudit(
        **{
            "model": "fake/copies",
            "template": str(place / "sort.txt"),
            "demos": str(place / "pool.jsonl"),
            "attacks": ("gap", "repeat[longest=24,encoder=letters]"),
            "trials": 20,
            "bootstrap": 200,
            "fpr": (0.1,),
            "defenses": DEFENSES,
            "run_dir": place / name,
            "cache_dir": place / "cache",
        }
        | choices
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(place: Path) -> tuple[Path, Results]:
    folder, results = audit_prompt(config(place, "run"))
    return folder.path, results


def test_every_defence_is_judged_twice_beside_what_it_costs(run: tuple[Path, Results]) -> None:
    _, results = run
    assert [one.defense for one in results.defences] == list(DEFENSES)
    said = {one.defense: one for one in results.defences}
    for one in results.defences:
        assert [attack.attack for attack in one.attacks] == [
            "gap",
            "repeat[longest=24,encoder=letters]",
        ]
        assert one.fpr == 0.1
        assert one.accuracy_before == results.defences[0].accuracy_before
        assert one.accuracy.n == (0, 20)
        for attack in one.attacks:
            assert attack.fixed.auc == attack.recalibrated.auc, "neither of them learns"
    (row,) = [row for row in results.attacks if row.name.startswith("repeat")]
    for one in results.defences:
        assert one.attacks[1].before.auc.value == row.auc.value
    rewritten = said["rewrite_filter[fewest=2,longest=12]"]
    assert rewritten.attacks[1].recalibrated.auc.value < row.auc.value - 0.2
    assert rewritten.similarity.value < 0.8
    assert rewritten.similarity.n[0] == 0
    assert said["instruction"].similarity is None
    assert said[DP].guarantee.releases == 12
    assert said[DP].guarantee.epsilon > 1000, "hardly any noise guarantees nothing"
    assert not said[DP].guarantee.degenerate
    assert any("not for production" in note for note in said[DP].notes)


def test_texts_about_one_record_count_as_one(place: Path) -> None:
    attacks = tuple(f"repeat[words={n},encoder=letters,longest=24]" for n in (2, 3))
    choices = {"trials": 40, "control": "none", "defenses": ("rewrite_filter[fewest=1]",)}
    apart = []
    for name, some in (
        ("both", attacks),
        ("two", attacks[:1]),
        ("three", attacks[1:]),
        ("gap", "gap"),
    ):
        folder, results = audit_prompt(config(place, name, attacks=some, **choices))
        (defence,) = results.defences
        apart.append(defence.similarity)
    with (folder.path / "data" / "cases.csv").open() as file:
        outside = {row["record"] for row in csv.DictReader(file) if row["member"] == "0"}
    assert len(outside) < 40
    assert {one.n for one in apart} == {(0, len(outside))}
    both, two, three, gap = (one.value for one in apart)
    # Each asks what the task is too, to see whether the answer is right.
    assert 3 * both == pytest.approx(2 * two + 2 * three - gap)


def test_scored_again_it_says_the_same(run: tuple[Path, Results], tmp_path: Path) -> None:
    path, results = run
    shutil.copytree(path, tmp_path / "copy")
    _, again = rescore(tmp_path / "copy")
    assert again.defences == results.defences
    wrong = [
        item for item in verify(tmp_path / "copy").items if not item.ok and item.what != "report.md"
    ]
    assert not wrong


def test_what_a_defence_wrote_is_not_written_twice(place: Path, run: tuple[Path, Results]) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    start = ready(config(place, "again"), target=None, demos=None, say=lambda _: None)
    start.model.target.next_token_probabilities = refuse
    dp = start.settings[-1]
    with Store(answers_file(start.config)) as store:
        written = dp.written(start.helpers, store)
    assert [case.id for case in written.cases] == [case.id for case in dp.cases]
    assert all(demo.id.endswith("~") for case in written.cases for demo in case.demos)


def test_nothing_that_a_defence_wrote_is_in_the_run_folder(run: tuple[Path, Results]) -> None:
    path, _ = run
    words = {w for row in demos.rows(60) for w in row["text"].rstrip(".").split()}
    for file in path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [word for word in words if word.encode() in content], file


def test_an_attack_that_learns_is_told_from_one_who_knows_of_the_defence(
    place: Path, tmp_path: Path
) -> None:
    attacks = ("hybrid[encoder=letters,cap=1,model=logistic]",)
    choices = {"attacks": attacks, "defenses": ("rewrite_filter[fewest=2,longest=12]",)}
    folder, results = audit_prompt(config(place, "learnt", **choices))
    ((hybrid,),) = (one.attacks for one in results.defences)
    assert "sqrt(2)" in hybrid.fixed.auc.method
    assert hybrid.fixed.auc != hybrid.recalibrated.auc
    assert hybrid.fixed.auc.n == (20, 20)
    shutil.copytree(folder.path, tmp_path / "copy")
    _, again = rescore(tmp_path / "copy")
    assert again.defences == results.defences
