import numpy as np
import pytest
import reports

from unseen.attacks.activation_probe import ActivationProbe
from unseen.report import html, markdown
from unseen.report import language as say
from unseen.runs.config import StatisticsChoices
from unseen.runs.inside.layers import by_layer
from unseen.runs.judge import Judge
from unseen.runs.results import LayerReport
from unseen.runs.subjects import Subjects
from unseen.signals.activations import Activations, States
from unseen.signals.base import CONTROL, REFERENCE, TARGET, Observations

pytestmark = pytest.mark.slow  # whole audits

N, WIDTH = 60, 24
IDS = tuple(f"r{i:02d}" for i in range(N))
MEMBER = np.arange(N) % 2 == 0
PROBE = ActivationProbe()


def states(role: str, telling: int | None) -> dict[Activations, dict[str, States]]:
    rng = np.random.default_rng(len(role))
    rows = rng.normal(size=(N, 3, WIDTH))
    if telling is not None:
        rows[MEMBER, telling, :4] += 1.2
    values = {id_: States(row.astype(np.float32)) for id_, row in zip(IDS, rows, strict=True)}
    return {Activations(of=role): values}


def observations() -> Observations:
    return Observations(IDS, states(TARGET, 1) | states(REFERENCE, None) | states(CONTROL, None))


def judge(n: int = N) -> Judge:
    return Judge(StatisticsChoices(bootstrap=200), Subjects(IDS[:n], MEMBER[:n]))


def reported(**attacks: list) -> tuple[LayerReport, ...]:
    given = {TARGET: [PROBE], REFERENCE: [], CONTROL: []} | attacks
    return by_layer(judge(), given, observations())


@pytest.fixture(scope="module")
def compared() -> LayerReport:
    """Beside the models that the attack was repeated on."""
    (found,) = reported(reference=[PROBE], control=[ActivationProbe(layer=2)])
    return found


def test_each_layer_is_judged_as_the_attack_on_it_alone_would_be(compared: LayerReport) -> None:
    found = compared
    assert (found.attack, found.tokens, found.note) == ("activation_probe", "all", None)
    assert [row.layer for row in found.rows] == [0, 1, 2]
    for row in found.rows:
        scores = judge().score(ActivationProbe(layer=row.layer), observations())
        wins = np.sign(scores.values[MEMBER][:, None] - scores.values[~MEMBER])
        assert row.auc.value == pytest.approx((wins.mean() + 1) / 2)
        assert row.auc.ci[0] < row.auc.value < row.auc.ci[1]
        assert row.auc == judge().row("a", scores, kind="attack", attack=PROBE).auc
    assert found.rows[1].auc.ci[0] > 0.5
    assert found.rows[0].auc.ci[0] < 0.5 < found.rows[0].auc.ci[1]


def test_beside_it_stand_the_models_that_it_was_repeated_on(compared: LayerReport) -> None:
    for row in compared.rows:
        assert row.reference is not None
        assert row.control is not None
        assert row.reference.ci[0] < 0.6


def test_without_the_attack_there_is_none_and_with_too_few_records_a_reason() -> None:
    assert reported(target=[]) == ()
    nothing = Observations(IDS, {})
    assert by_layer(judge(), {TARGET: [PROBE]}, nothing) == (), "scored again, without the states"
    (few,) = by_layer(judge(40), {TARGET: [PROBE]}, observations().select(IDS[:40]))
    assert few.note == "fewer than 20 known records of a side to learn from"
    assert few.rows == ()
    two = reported(target=[PROBE, ActivationProbe(layer=1), ActivationProbe(tokens="response")])
    assert [one.attack for one in two] == ["activation_probe"], "no states of responses"
    assert {(row.reference, row.control) for row in two[0].rows} == {(None, None)}


def test_the_report_shows_them(compared: LayerReport, tmp_path) -> None:
    rows = tuple(row.model_copy(update={"control": None}) for row in compared.rows)
    found = (compared.model_copy(update={"rows": rows}),)
    results = reports.results(layers=found)
    for text in (
        markdown.render(results),
        html.render(reports.folder(tmp_path / "run", results), results),
    ):
        for words in (
            "Which layers tell them apart?", "0 (embeddings)", "2 (after the final norm)",
            "on the reference", "and no memory",
        ):  # fmt: skip
            assert words in text
        assert "on the control model" not in text
    few = (LayerReport(attack="activation_probe", tokens="all", note="too few"),)
    assert ": too few." in markdown.render(reports.results(layers=few))
    assert say.WITHHELD in markdown.render(reports.invalid(layers=found))
    assert "Which layers" not in markdown.render(reports.results())
