import numpy as np
import pytest
import reports

from unseen.report.markdown import render
from unseen.runs.config import StatisticsChoices
from unseen.runs.judge import Judge
from unseen.runs.results import Agreement, OptimizationGap
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.validity import concluded
from unseen.types import Scores

IDS = tuple(f"r{i}" for i in range(60))
MEMBER = np.arange(60) < 30


def scores(values: np.ndarray, ids: tuple[str, ...] = IDS) -> Scores:
    return Scores(ids, values, {id_: "because" for id_ in IDS if id_ not in ids})


def judged(**made: Scores):
    judge = Judge(StatisticsChoices(bootstrap=200), Subjects(IDS, MEMBER))
    names = {name.replace("__", "[batch=8]"): one for name, one in made.items()}
    rows = [
        judge.row(name, one, kind="blind" if name == "words" else "attack")
        for name, one in names.items()
    ]
    return judge, judge.verdicts(rows, Scored(names), [])


def test_the_gain_of_each_side_and_who_orders_records_like_it() -> None:
    rng = np.random.default_rng(0)
    gain = np.where(MEMBER, 0.3, 0.6) + rng.normal(scale=0.05, size=60)
    some = IDS[5:]
    _, verdicts = judged(
        optimization_gap__=scores(-gain),
        like=scores(-10 * gain[5:], some),
        random=scores(rng.normal(size=60)),
        constant=scores(np.ones(60)),
        silent=scores(np.array([]), ()),
        words=scores(-gain),
    )
    gap = verdicts.gap
    assert gap is not None
    assert gap.attack == "optimization_gap[batch=8]"
    assert gap.members.value == pytest.approx(gain[:30].mean())
    assert gap.nonmembers.value == pytest.approx(gain[30:].mean())
    assert gap.difference.value == pytest.approx(gain[:30].mean() - gain[30:].mean())
    assert gap.difference.ci[1] < 0
    found = {one.attack: one.spearman for one in gap.agreement}
    assert list(found) == ["like", "random"], "no baseline, and nothing that is constant"
    assert found["like"].value == pytest.approx(1)
    assert found["like"].n == (25, 30)
    assert found["random"].ci[0] < 0 < found["random"].ci[1]


def test_without_the_attack_or_with_one_side_there_is_none() -> None:
    rising = np.arange(60.0)
    assert judged(loss=scores(rising))[1].gap is None
    assert judged(optimization_gap=scores(rising[:31], IDS[:31]))[1].gap is None


def test_it_is_withheld_where_the_evidence_is_invalid() -> None:
    rng = np.random.default_rng(1)
    apart = np.where(MEMBER, 1.0, 0.0) + rng.normal(scale=0.01, size=60)
    judge, verdicts = judged(
        optimization_gap=scores(rng.normal(size=60)), words=scores(apart), loss=scores(-apart)
    )
    fields = concluded(judge, verdicts, None)
    assert fields["validity"].verdict == "invalid"
    assert fields["optimization_gap"] is None
    assert verdicts.gap is not None


def test_the_report_tells_it() -> None:
    assert "What is left to learn?" not in render(reports.results())
    for value, sentence in (
        (-0.2, "Members have less left to learn than non-members."),
        (0.0, "about as much left to learn"),
        (0.2, "Members have more left to learn"),
    ):
        apart = reports.number(value).model_copy(update={"ci": (value - 0.1, value + 0.1)})
        gap = OptimizationGap(
            attack="optimization_gap",
            members=reports.number(0.27),
            nonmembers=reports.number(0.46),
            difference=apart,
            agreement=(
                Agreement(attack="worse", spearman=reports.number(0.2)),
                Agreement(attack="icp_sp", spearman=reports.number(0.8)),
            ),
        )
        page = render(reports.results(optimization_gap=gap))
        assert "What is left to learn?" in page
        assert sentence in page
        assert page.index("icp\\_sp") < page.index("worse")
