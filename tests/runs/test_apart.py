"""Non-members of other kinds: judged apart, never pooled, and flagged where controls separate too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
import records
import reports
import tiny
import torch

import unseen
from unseen.attacks import create
from unseen.attacks.base import Known, score_each
from unseen.cli.main import run as command
from unseen.data.synthetic import people
from unseen.errors import ConfigError, DataError
from unseen.report import html, language, markdown
from unseen.report.summary import apart as rows_of
from unseen.runs.apart import MOST_OF_A_QUESTION, _together, judged_apart, read_apart
from unseen.runs.apart import Repeated as Attacks
from unseen.runs.config import configure
from unseen.runs.folder import RunFolder
from unseen.runs.judge import Judge
from unseen.runs.prepared import prepare, read
from unseen.runs.results import Apart, DataFacts, Shift, Side
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.validity import checks
from unseen.signals.base import Observations
from unseen.targets.access import Access
from unseen.types import Record, Scores, Turn

N = 40
ATTACKS = ("loss", "min_k", "reference")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Both sides, wrong answers to the questions of the non-members with two copies, and others."""
    members, nonmembers = records.sides(tmp_path / "data", N, plant=True)
    held_out = lines(nonmembers)
    wrong = [
        row | {"completion": held_out[(at + 1) % N]["completion"]}
        for at, row in enumerate(held_out)
    ]
    copies = [lines(members)[3] | {"id": "m"}, held_out[5] | {"id": "n"}]
    later = [records.row(record) for record in people(30, 5)]
    return {
        "members": members,
        "nonmembers": nonmembers,
        "counterfactual": records.write(tmp_path / "data" / "wrong.jsonl", wrong + copies),
        "iid": records.write(tmp_path / "data" / "more.jsonl", later),
    }


@pytest.fixture
def choices(files, tmp_path) -> dict[str, Any]:
    return {
        "model": f"fake/{files['members']}",
        "members": str(files["members"]),
        "nonmembers": str(files["nonmembers"]),
        "nonmembers_apart": {kind: str(files[kind]) for kind in ("counterfactual", "iid")},
        "attacks": ATTACKS,
        "run_dir": tmp_path / "run",
        "cache_dir": tmp_path / "cache",
        "bootstrap": 200,
        "fpr": (0.1,),
    }


def auc_by_pairs(scores: dict[str, list[Any]], name: str) -> float:
    pairs = list(zip(scores[name], scores["member"], strict=True))
    members = [score for score, member in pairs if member and score is not None]
    others = [score for score, member in pairs if not member and score is not None]
    return float(np.mean([(m > n) + (m == n) / 2 for m in members for n in others]))


def test_sets_are_judged_apart_and_change_no_other_number(choices, files, tmp_path) -> None:
    said: list[str] = []
    found = unseen.audit_finetune(**choices, note=said.append)
    alone = unseen.audit_finetune(
        **choices | {"nonmembers_apart": (), "run_dir": tmp_path / "alone"}
    )
    for name in ("attacks", "control", "headline", "checks", "requests", "exposed"):
        assert getattr(found.results, name) == getattr(alone.results, name), name
    assert any("2 counterfactual non-members are copies" in sentence for sentence in said)

    main = pq.read_table(found.folder / "records.parquet").to_pydict()
    for one in found.results.apart:
        n = N if one.kind == "counterfactual" else 30
        assert one.n == (N, n)
        assert one.n_copies == (2 if one.kind == "counterfactual" else 0)
        assert one.source.n_read == n + one.n_copies
        assert [row.name for row in one.attacks] == [row.name for row in found.results.attacks]
        assert {row.model for row in one.control} == {"reference"}
        scores = pq.read_table(found.folder / "apart" / f"{one.kind}.parquet").to_pydict()
        assert [id_ for id_, m in zip(scores["id"], scores["member"], strict=True) if m] == [
            id_ for id_, m in zip(main["id"], main["member"], strict=True) if m
        ]
        assert all(id_.startswith(f"{one.kind}:") for id_ in scores["id"][N:])
        for row in one.attacks:
            assert row.auc.value == pytest.approx(auc_by_pairs(scores, f"score.{row.name}"))
            assert row.roc is None
        assert scores["score.loss"][:N] == pytest.approx(main["score.loss"][:N])
        shifts = {shift.attack: shift.difference for shift in one.shifts}
        own = {row.name: row.auc.value for row in found.results.attacks}
        for row in one.attacks:
            assert shifts[row.name].value == pytest.approx(row.auc.value - own[row.name])
            assert shifts[row.name].ci[0] < shifts[row.name].value < shifts[row.name].ci[1]
    assert found.results.data.nonmembers_apart == ("counterfactual", "iid")
    assert unseen.verify_run(found.folder).ok
    everything = b"".join(file.read_bytes() for file in found.folder.rglob("*") if file.is_file())
    for file in (found.folder / "apart").iterdir():
        everything += str(pq.read_table(file).to_pydict()).encode()
    assert not any(records.planted(i).encode() in everything for i in range(records.N_PLANTED))

    markdown_ = unseen.report_run(found.folder, "md")
    assert "## Non-members of other kinds" in markdown_
    assert "Members against counterfactual non-members" in markdown_
    assert markdown_.index("other kinds") < markdown_.index("Which records are exposed")
    assert "Members against i.i.d. non-members" in unseen.report_run(found.folder, "html")


@pytest.mark.slow
def test_scoring_again_keeps_them_and_the_plan_counts_them(choices, capsys) -> None:
    given = {name: value for name, value in choices.items() if name != "run_dir"}
    forecast = unseen.plan(**given)
    assert forecast.apart == {"counterfactual": N, "iid": 30}
    assert forecast.asked["target"].distinct == N + N + N + 30
    found = unseen.audit_finetune(**choices, keep_tokens=True)
    # The members are asked in each set, and each once: what they have said is found again.
    spent = json.loads((found.folder / "run.json").read_text())["attempts"][-1]["requests_scored"]
    assert spent["target"] == forecast.asked["target"].distinct
    again = unseen.score_run(found.folder)
    assert again.results.apart == found.results.apart
    wider = unseen.score_run(found.folder, fpr=(0.2,), confidence=0.99, attacks=["min_k[k=0.5]"])
    (one, _), (before, _) = wider.results.apart, found.results.apart
    assert [row.auc.value for row in one.attacks] == [row.auc.value for row in before.attacks]
    assert one.attacks[0].auc.ci[0] < before.attacks[0].auc.ci[0]
    assert unseen.verify_run(found.folder).ok
    assert command(["score", str(found.folder)]) in (0, 10, 11)
    assert "members against counterfactual non-members, judged apart" in capsys.readouterr().out


@pytest.mark.slow
def test_records_alone_are_checked_with_their_sets(choices, capsys) -> None:
    given = {
        k: choices[k] for k in ("members", "nonmembers", "nonmembers_apart", "bootstrap", "fpr")
    }
    results = unseen.check_data(**given, nonmember_kind="iid")
    assert {row.kind for one in results.apart for row in one.attacks} == {"blind"}
    assert next(c.status for c in results.checks if c.id == "nonmember_kind") == "pass"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("wrong",), "expected KIND=FILE"),
        (("truth=a.jsonl",), "iid, counterfactual, future"),
        (("iid=",), "expected KIND=FILE"),
        (("iid=a.jsonl", "iid=b.jsonl"), "each kind once"),
    ],
)
def test_what_is_no_set_is_refused(given, message) -> None:
    with pytest.raises(ConfigError, match=message):
        configure(nonmembers_apart=given)


def test_a_set_can_be_written_in_every_place(tmp_path, monkeypatch) -> None:
    assert configure(nonmembers_apart="iid=a.jsonl,future=b.jsonl").apart == {
        "iid": "a.jsonl", "future": "b.jsonl",
    }  # fmt: skip
    assert configure(nonmembers_apart={"future": "b=c.jsonl"}).apart == {"future": "b=c.jsonl"}


def test_a_set_without_records_of_its_own_or_of_another_form_is_refused(
    choices, files, tmp_path
) -> None:
    config = configure(**choices)
    everything = read(config)
    copies = records.write(tmp_path / "copies.jsonl", lines(files["members"])[:4])
    texts = records.write(tmp_path / "texts.jsonl", [{"text": "a"}, {"text": "b"}])
    for file, message in ((copies, "no record that is not"), (texts, "of the form")):
        changed = config.model_copy(update={"nonmembers_apart": (f"future={file}",)})
        with pytest.raises(DataError, match=message):
            read_apart(changed, everything, everything)


def test_records_of_one_question_stay_together_and_an_instruction_joins_nobody() -> None:
    def record(id_: str, question: str, answer: str) -> Record:
        return Record(id_, (Turn("user", question), Turn("assistant", answer)), slices={"a": "b"})

    asked = [record("m", "Who?", "A"), record("n", " WHO?", "B"), record("o", "Why?", "C")]
    alike = [record(f"i{i}", "Write a note.", str(i)) for i in range(MOST_OF_A_QUESTION + 1)]
    texts = [Record(f"t{i}", (Turn("text", f"text {i}"),)) for i in range(3)]
    made = {one.id: one for one in _together([*asked, *alike, *texts])}
    assert made["m"].cluster == made["n"].cluster
    assert made["m"].cluster is not None
    others = [one.cluster for id_, one in made.items() if id_ not in ("m", "n")]
    assert others == [None] * len(others)
    assert made["m"].slices == {}


# --- learnt scores, controls --------------------------------------------------------------------


IDS = (*(f"m{i}" for i in range(N)), *(f"counterfactual:{i}" for i in range(N)))
MEMBER = np.arange(2 * N) < N


@dataclass(frozen=True)
class Learns:
    """Notes who it has learned from; says how many of them were members."""

    access: ClassVar[Access] = Access.LOGIT
    paper: ClassVar[str] = ""
    fitted: ClassVar[bool] = True

    seen: ClassVar[list[Any]] = []

    def signals(self) -> tuple[Any, ...]:
        return ()

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        self.seen.append((set(audited.ids), set(known.observations.ids)))
        return score_each(audited, lambda _: float(known.member.mean()))


def test_attacks_that_learn_learn_from_the_set_alone() -> None:
    attack = Learns()
    attack.seen.clear()
    judge = Judge(unseen.FinetuneAudit(), Subjects(IDS, MEMBER))
    judge.scored((attack,), (), Observations(IDS, {}))
    assert len(attack.seen) == 5
    for judged, learned_from in attack.seen:
        assert not judged & learned_from
        assert judged | learned_from == set(IDS)


def drawn(effect: float, seed: int) -> Scores:
    return Scores(IDS, np.random.default_rng(seed).normal(size=2 * N) + effect * MEMBER)


def test_an_attack_whose_control_separates_is_named() -> None:
    judge = Judge(unseen.FinetuneAudit(bootstrap=300), Subjects(IDS, MEMBER))
    attacks = tuple(map(create, ("loss", "min_k", "zlib")))
    scored = Scored(
        {name: drawn(2, seed) for seed, name in enumerate(("loss", "min_k", "zlib"))},
        {"loss": drawn(0, 7)},
        {"loss": drawn(0, 8), "min_k": drawn(1, 9), "zlib": drawn(-1, 10)},
    )
    about = Apart(
        kind="counterfactual", source=Side(path="x", sha256="0", n_read=N, n_judged=N), n=(N, N)
    )
    main = (Subjects(IDS, MEMBER), Scored({"loss": drawn(0.5, 20), "min_k": drawn(0.5, 21)}))
    found = judged_apart(about, judge, Attacks(attacks, attacks[:1], attacks), scored, main)
    assert found.separates == ("min_k", "zlib")
    assert [shift.attack for shift in found.shifts] == ["loss", "min_k"], "what the audit has too"
    told = {row[0]: row[-1] for row in rows_of(found)}
    assert told == {
        "loss": "",
        "min_k": "also separates without membership",
        "zlib": "also separates without membership",
    }
    results = reports.results(apart=(found,))
    for text in (markdown.render(results), _page(results)):
        assert "This set also separates without membership" in text
        assert "on the control model" in text


def _page(results: Any) -> str:
    return html._page(results, {"config": {}}, {"roc": None}, None)


def test_a_shift_of_what_learns_is_less_certain_and_too_few_are_said() -> None:
    judge = Judge(unseen.FinetuneAudit(bootstrap=300), Subjects(IDS, MEMBER))
    learns = Learns()
    name = "test_apart.learns"
    about = Apart(kind="future", source=Side(path="x", sha256="0", n_read=N, n_judged=N), n=(N, N))
    main = (Subjects(IDS, MEMBER), Scored({"loss": drawn(1, 1), name: drawn(1, 1)}))

    def shift(attack: Any, called: str, scores: Scores) -> Shift:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unseen.runs.judge.label", lambda _: called)
            made = judged_apart(about, judge, Attacks((attack,)), Scored({called: scores}), main)
        return made.shifts[0]

    fixed = shift(create("loss"), "loss", drawn(2, 3)).difference
    learnt = shift(learns, name, drawn(2, 3)).difference
    assert np.diff(learnt.ci) > 1.25 * np.diff(fixed.ci)
    few = Scores(IDS[: N + 3], drawn(2, 3).values[: N + 3], dict.fromkeys(IDS[N + 3 :], "short"))
    assert shift(create("loss"), "loss", few).note


@pytest.mark.slow
def test_an_attack_that_learns_from_weights_beside_both_controls(tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path / "data", 32)
    held_out = lines(nonmembers)
    wrong = [
        row | {"completion": held_out[(at + 1) % 32]["completion"]}
        for at, row in enumerate(held_out)
    ]
    models = [
        str(tiny.folder(tmp_path / str(seed), seed=seed, dtype=torch.float32)) for seed in range(3)
    ]
    found = unseen.audit_finetune(
        models[0], reference=models[1], control_model=models[2], members=str(members),
        nonmembers=str(nonmembers), attacks=("g_drift",), bootstrap=200, fpr=(0.1,),
        nonmembers_apart={"counterfactual": str(records.write(tmp_path / "wrong.jsonl", wrong))},
        run_dir=tmp_path / "run", cache_dir=tmp_path / "cache",
    )  # fmt: skip
    (one,) = found.results.apart
    assert {(row.name, row.model) for row in one.control} == {
        (name, model) for name in ("loss", "min_k", "g_drift") for model in ("reference", "control")
    }
    by_name = {row.name: row for row in one.attacks}
    assert by_name["g_drift"].n == (32, 32)
    assert by_name["g_drift"].auc.method.endswith("for a learnt score")
    assert "control_model" in {check.id for check in found.results.checks}
    assert {gain.attack for gain in found.results.gains} == {"g_drift"}
    assert unseen.score_run(found.folder).results.apart == found.results.apart
    change = pq.read_table(found.folder / "apart" / "counterfactual.parquet").to_pydict()
    change["score.loss"] = change["score.loss"][::-1]
    folder = RunFolder(found.folder)
    folder.write_table("apart/counterfactual.parquet", change)
    folder.write_manifest()
    faults = [item for item in unseen.verify_run(found.folder).items if not item.ok]
    assert [item.what for item in faults] == ["apart/counterfactual.parquet"]


# --- what the audit's own non-members are ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "apart", "status", "words"),
    [
        ("iid", (), "pass", "own source"),
        ("counterfactual", (), "fail", "truthfulness as well as membership"),
        ("counterfactual", ("future",), "fail", "truthfulness"),
        ("counterfactual", ("iid",), "warn", "i.i.d. non-members that are judged apart"),
        ("future", (), "fail", "novelty as well as membership"),
        ("future", ("iid",), "warn", "novelty"),
    ],
)
def test_non_members_of_another_kind_withhold_the_claim(kind, apart, status, words) -> None:
    side = Side(path="x", sha256="0", n_read=N, n_judged=N)
    data = DataFacts(
        members=side, nonmembers=side, format="text", loss_on="all", template_sha256="0",
        nonmember_kind=kind, nonmembers_apart=apart,
    )  # fmt: skip
    judge = Judge(unseen.FinetuneAudit(bootstrap=200), Subjects(IDS, MEMBER))
    rows = [judge.row("loss", drawn(2, 0), kind="attack")]
    verdicts = judge.verdicts(rows, Scored({"loss": drawn(2, 0)}), [])
    (check,) = (one for one in checks(judge, verdicts, data) if one.id == "nonmember_kind")
    assert check.status == status
    assert words in check.detail
    assert (check.fix is None) == (status == "pass")
    unknown = data.model_copy(update={"nonmember_kind": "unknown"})
    assert "nonmember_kind" not in {one.id for one in checks(judge, verdicts, unknown)}


def test_every_kind_has_its_words() -> None:
    from unseen.runs.config import APART

    for words in (language.KINDS_OF_NONMEMBERS, language.SAYS_OF_KIND):
        assert tuple(words) == APART


def test_a_set_is_not_shown_to_itself_and_its_probes_are_found(choices, files, tmp_path) -> None:
    """A record of a set that stands in the pool is no demonstration of itself; ids say their kind."""
    wrong = lines(files["counterfactual"])
    probes = records.write(
        tmp_path / "probes.jsonl", [{"id": f"counterfactual:{wrong[0]['id']}", "probe": "None."}]
    )
    config = configure(
        **choices | {"reference_pool": str(files["counterfactual"]), "probes": str(probes)}
    )
    signals = [
        signal
        for name in ("icp_ref[probes=2]", "icp_sp[source=file]")
        for signal in create(name).signals()
    ]
    prepared = prepare(config, read(config), signals)
    assert len(prepared.further) == N + 30
    assert prepared.pool._alike[f"counterfactual:{wrong[0]['id']}"] == frozenset({0})
    assert set(prepared.given.texts) == {f"counterfactual:{wrong[0]['id']}"}
