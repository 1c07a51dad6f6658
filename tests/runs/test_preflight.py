from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import broken
import numpy as np
import pytest
import records
import tiny

import unseen
from unseen.cli.main import run
from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import OutOfMemoryError, PreflightError, TargetError
from unseen.runs import preflight as tested
from unseen.runs.collect import Model
from unseen.runs.preflight import TITLES, in_a_line, preflight, refuse
from unseen.signals.base import REFERENCE, TARGET
from unseen.targets.access import Access
from unseen.targets.huggingface import HFTarget
from unseen.targets.limited import LimitedTarget
from unseen.types import Record, TokenStats, Turn

RECORDS = people(24, 3)
MEMBERS, NONMEMBERS = RECORDS[:12], RECORDS[12:]
TEXTS = [record.response for record in MEMBERS]


def models(target, reference=None, **layout) -> dict[str, Model]:
    def model(of) -> Model:
        return Model(of, RecordEncoder(of.tokenizer, Layout(**layout), limit=of.max_length))

    return {TARGET: model(target)} | ({} if reference is None else {REFERENCE: model(reference)})


def checked(target, reference=None, *, seed: int = 0, **layout):
    made = preflight(models(target, reference, **layout), MEMBERS, NONMEMBERS, seed=seed)
    assert [check.id for check in made] == list(TITLES)
    return {check.id: check for check in made}


def statuses(checks) -> dict[str, str]:
    return {id_: check.status for id_, check in checks.items()}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    members, nonmembers = records.sides(tmp_path / "data", 20, plant=True)
    return str(members), str(nonmembers)


@pytest.fixture
def audit(files, tmp_path):
    def run_it(target, **choices):
        given = {
            "members": files[0],
            "nonmembers": files[1],
            "attacks": ("loss",),
            "run_dir": tmp_path / "run",
            "cache_dir": tmp_path / "cache",
            "bootstrap": 200,
            "fpr": (0.1,),
        }
        return unseen.audit_finetune(target, **(given | choices))

    return run_it


def remembered(members: str) -> list[str]:
    return [json.loads(line)["completion"] for line in Path(members).read_text().splitlines()]


# --- what is wrong is found, by the check that is made for it ---------------------------------


@pytest.mark.parametrize("access", [Access.LOGIT, Access.LOGPROB])
@pytest.mark.parametrize("kind", broken.STOPPED_BY, ids=lambda kind: kind.__name__)
def test_a_broken_model_is_stopped_by_the_check_for_it(
    kind, access, audit, files, tmp_path
) -> None:
    target = kind(remembered(files[0]), access=access)
    with pytest.raises(PreflightError) as caught:
        audit(target)
    id_ = broken.STOPPED_BY[kind]
    assert f"{id_}: " in caught.value.problem
    assert "--no-preflight" in (caught.value.fix or "")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [c["id"] for c in about["preflight"] if c["status"] == "fail"] == [id_]
    assert about["status"] == "refused"
    assert not (tmp_path / "run" / "results.json").exists()
    assert not (tmp_path / "cache" / "answers.sqlite").exists()


@pytest.mark.parametrize("kind", broken.STOPPED_BY, ids=lambda kind: kind.__name__)
def test_on_the_command_line_the_exit_code_is_11(
    kind, files, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unseen.runs.models._fake", lambda _: kind(remembered(files[0])))
    command = ["audit", "finetune", "--model", "fake/any", "--members", files[0],
               "--nonmembers", files[1], "--attacks", "loss", "--cache-dir", "c"]  # fmt: skip
    assert run(command) == 11
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("error[preflight]") == 1
    assert broken.STOPPED_BY[kind] in shown.err
    assert "Traceback" not in shown.err
    written = shown.err + "".join(
        f.read_text(errors="replace") for f in tmp_path.rglob("runs/*/*") if f.is_file()
    )
    assert not [i for i in range(records.N_PLANTED) if records.planted(i) in written]


def test_what_is_only_a_little_wrong_passes(monkeypatch) -> None:
    monkeypatch.setattr(broken.ByCompany, "PENALTY", 1e-4)
    assert checked(broken.ByCompany(TEXTS))["batch_invariance"].status == "pass"
    monkeypatch.setattr(broken.ByCompany, "PENALTY", 3e-4)
    assert checked(broken.ByCompany(TEXTS))["batch_invariance"].status == "fail"


def test_a_model_that_cannot_answer_is_refused_and_one_without_memory_is_not_blamed() -> None:
    class Unfit(unseen.FakeTarget):
        error: Exception = TargetError("no finite numbers", fix="--dtype float32")

        def execute(self, batch):
            raise self.error

    found = checked(Unfit(TEXTS))["logprobs_real"]
    assert (found.status, found.fix) == ("fail", "--dtype float32")
    Unfit.error = OutOfMemoryError("full")
    with pytest.raises(OutOfMemoryError):
        checked(Unfit(TEXTS))


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("logprob", [-1.0, 0.5], "above 0"),
        ("logprob", [-1.0, np.nan], "not finite"),
        ("logprob", [-1.0], "1 values"),
        ("mean", [-1.0, 0.5], "negative entropy"),
        ("sd", [1.0, -0.5], "negative standard deviation"),
        ("rank", [0, 9], "contradict"),
        ("rank", [0, -1], "contradict"),
        ("argmax", [0], "1 values"),
    ],
)
def test_statistics_that_cannot_be_are_not_real(part, value, words) -> None:
    class Odd(unseen.FakeTarget):
        def execute(self, batch):
            return [
                TokenStats(
                    **(
                        {name: np.resize(array, len(row.continuation)) for name, array in
                         {"logprob": [-1.0, -2.0], "mean": [-1.0, -2.0], "sd": [1.0, 1.0],
                          "rank": [0, 1], "argmax": [0, 0]}.items()}
                        | {part: np.array(value) if len(value) < 2
                           else np.resize(value, len(row.continuation))}
                    )
                )
                for row in batch.requests
            ]  # fmt: skip

    found = checked(Odd())["logprobs_real"]
    assert found.status == "fail"
    assert words in found.detail


# --- what is sound passes ---------------------------------------------------------------------


@pytest.mark.parametrize("access", [Access.LOGPROB, Access.LOGIT])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("layout", [{}, {"template": "plain"}, {"loss_on": "all"}])
def test_a_sound_fake_model_passes_everything(access, seed, layout) -> None:
    target = unseen.FakeTarget(TEXTS, access=access)
    made = checked(target, target.reference, seed=seed, **layout)
    assert set(statuses(made).values()) == {"pass"}
    assert target.n_executed <= 80


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_sound_real_model_passes_everything(family, padding, tmp_path) -> None:
    target, reference = (
        HFTarget(
            tiny.folder(tmp_path / str(seed), family, seed=seed), padding=padding, dtype="float32"
        )
        for seed in (0, 1)
    )
    made = checked(target, reference)
    assert set(statuses(made).values()) == {"pass"}
    assert "at most 0.001 nats" in made["batch_invariance"].limit
    limited = unseen.LimitedTarget(target, Access.LOGPROB)
    assert set(statuses(checked(limited, reference)).values()) == {"pass"}


def test_a_real_model_in_low_precision_has_more_room(tmp_path) -> None:
    target = HFTarget(tiny.folder(tmp_path), dtype="bfloat16")
    made = checked(target)
    assert made["adapter_effect"].status == "skip"
    assert set(statuses(made).values()) == {"pass", "skip"}
    assert "at most 0.5 nats" in made["teacher_forced"].limit


def with_adapter(base: Path, where: Path, *, trained: bool) -> HFTarget:
    """A tiny model with an adapter; one that is not trained adds exactly nothing."""
    import peft
    import torch
    import transformers

    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=True
    )
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), config)
    if trained:
        with torch.random.fork_rng():
            torch.random.manual_seed(5)
            for parameter in model.parameters():
                if parameter.requires_grad:
                    torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(where)
    return HFTarget(where, dtype="float32", reference="base")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_adapters_with_and_without_an_effect(tmp_path) -> None:
    base = tiny.folder(tmp_path / "base")
    trained = with_adapter(base, tmp_path / "trained", trained=True)
    assert set(statuses(checked(trained, trained.reference)).values()) == {"pass"}
    fresh = with_adapter(base, tmp_path / "fresh", trained=False)
    made = checked(fresh, fresh.reference)
    assert [id_ for id_, check in made.items() if check.status == "fail"] == ["adapter_effect"]
    assert made["adapter_effect"].value == 0
    # An adapter that generates and does not score, seen without any reference.
    trained.execute = trained.without_adapter().execute
    made = checked(trained)
    assert [id_ for id_, check in made.items() if check.status == "fail"] == ["teacher_forced"]


def test_positions_that_count_padding_are_found(tmp_path) -> None:
    target = HFTarget(tiny.folder(tmp_path, "gpt2"), padding="left", dtype="float32")
    target._takes_positions = False
    made = checked(target)
    assert [id_ for id_, check in made.items() if check.status == "fail"] == ["batch_invariance"]


@pytest.mark.parametrize(("n", "status"), [(0, "pass"), (2, "warn"), (8, "fail")])
def test_records_that_bring_a_beginning_of_their_own(n, status) -> None:
    texts = [f"{'<|begin|>' * (i % 4 < n / 2)}some words, {i}: <|begin|> is one" for i in range(8)]
    drawn = [Record(str(i), (Turn("text", text),)) for i, text in enumerate(texts)]
    made = preflight(models(unseen.FakeTarget()), drawn[:4], drawn[4:], seed=0)
    assert made[0].status == status


def test_a_target_that_cannot_generate_is_checked_without() -> None:
    class Scores(unseen.FakeTarget):
        def generate(self, prompts, *, max_new_tokens):
            raise NotImplementedError

    assert checked(Scores(TEXTS))["teacher_forced"].status == "pass"


def test_a_model_is_not_blamed_for_being_its_own_reference() -> None:
    found = checked(unseen.FakeTarget(), unseen.FakeTarget())["adapter_effect"]
    assert found.status == "warn"
    assert "one and the same" in found.detail


def test_a_reference_that_reads_other_tokens_is_not_compared() -> None:
    other = unseen.FakeTarget(tokenizer=unseen.targets.fake.FakeTokenizer(bos=False))
    found = checked(unseen.FakeTarget(TEXTS), other, template="plain")["adapter_effect"]
    assert found.status == "skip"


def test_where_nothing_can_be_scored_nothing_is_blamed() -> None:
    made = checked(unseen.FakeTarget(TEXTS), max_length=2)
    assert made["template"].status == "warn"
    assert {made[id_].status for id_ in TITLES if id_ != "template"} == {"skip"}


@pytest.mark.parametrize("text", ["a", "ab", "yes"])
def test_records_of_a_token_or_two_are_enough(text) -> None:
    short = [Record(str(i), (Turn("user", f"q{i}"), Turn("assistant", text))) for i in range(4)]
    made = preflight(models(unseen.FakeTarget(["q"])), short[:2], short[2:], seed=0)
    assert {check.status for check in made} <= {"pass", "skip"}
    tight = preflight(models(unseen.FakeTarget(["q"], max_length=9)), MEMBERS, NONMEMBERS, seed=0)
    assert not [check for check in tight if check.status == "fail"]


# --- slow twins -------------------------------------------------------------------------------


def by_hand(target, ids) -> np.ndarray:
    """log p of each token but the first, from the softmax of one position at a time."""
    values = []
    for place in range(1, len(ids)):
        logits = target.logits(ids[:place])[-1]
        values.append(logits[ids[place]] - np.log(np.exp(logits).sum()))
    return np.array(values)


def test_the_values_are_those_computed_one_token_at_a_time() -> None:
    target = unseen.FakeTarget(TEXTS)
    reference = target.reference
    made = checked(target, reference)
    pieces, _ = tested._draw(models(target)[TARGET], MEMBERS, NONMEMBERS, 0)
    changes, means = [], []
    for piece in pieces:
        ids = piece.request.context + piece.request.continuation
        n = len(piece.request.continuation)
        own = by_hand(target, ids)[-n:]
        means.extend(own)
        if piece.member:
            changes.extend(abs(own - by_hand(reference, ids)[-n:]))
    assert made["adapter_effect"].value == pytest.approx(np.mean(changes), rel=1e-3)
    assert made["logprobs_real"].value == pytest.approx(np.mean(means), rel=1e-3)
    scored = sum(piece.encoded.scored.sum() for piece in pieces)
    assert made["template"].value == pytest.approx(
        scored / sum(len(piece.encoded.ids) for piece in pieces), rel=1e-3
    )


def test_the_gap_between_alone_and_together_is_what_the_batch_adds() -> None:
    found = checked(broken.ByCompany(TEXTS))["batch_invariance"]
    n = tested.N_MEMBERS + tested.N_NONMEMBERS
    assert found.value == pytest.approx(broken.ByCompany.PENALTY * (n - 1), rel=1e-3)


def test_pieces_are_short_of_both_sides_and_of_different_lengths() -> None:
    pieces, _ = tested._draw(models(unseen.FakeTarget())[TARGET], MEMBERS, NONMEMBERS, 0)
    again, _ = tested._draw(models(unseen.FakeTarget())[TARGET], MEMBERS, NONMEMBERS, 0)
    assert [piece.request for piece in pieces] == [piece.request for piece in again]
    assert [piece.member for piece in pieces] == [True] * 3 + [False] * 2
    lengths = [piece.request.length for piece in pieces]
    assert len(set(lengths)) == len(lengths)
    assert max(lengths) <= 40
    for piece in pieces:
        text = piece.request.context[1:] + piece.request.continuation
        assert str(list(text))[1:-1] in str(list(piece.encoded.ids))
        assert piece.request.context[0] == piece.encoded.ids[0]


# --- once for a run folder --------------------------------------------------------------------


def test_checks_are_in_the_results_and_asked_once(audit, files) -> None:
    said: list[str] = []
    first = audit(unseen.FakeTarget(remembered(files[0])), note=said.append)
    ids = [check.id for check in first.results.checks]
    assert ids[: len(TITLES)] == list(TITLES)
    assert {c.status for c in first.results.checks if c.id in TITLES} == {"pass"}
    assert [line for line in said if line.startswith("example ")]
    assert len([line for line in said if line.startswith("preflight ")]) == len(TITLES)
    target = unseen.FakeTarget(remembered(files[0]))
    again = audit(target)
    assert target.n_executed == 0
    assert again.results.checks == first.results.checks


def test_a_failed_check_is_made_again(audit, files, monkeypatch) -> None:
    kind = broken.ByCompany
    with pytest.raises(PreflightError):
        audit(kind(remembered(files[0])))
    monkeypatch.setattr(kind, "PENALTY", 0.0)  # the server was mended; nothing else changed
    mended = audit(kind(remembered(files[0])))
    assert {c.status for c in mended.results.checks if c.id in TITLES} == {"pass"}
    about = json.loads((mended.folder / "run.json").read_text())
    assert [attempt["status"] for attempt in about["attempts"]] == ["refused", "complete"]


def test_switched_off_nothing_is_asked_and_the_results_say_so(audit, files) -> None:
    target = broken.ByCompany(remembered(files[0]))
    results = audit(target, preflight=False).results
    skipped = [check for check in results.checks if check.id in TITLES]
    assert [check.id for check in skipped] == list(TITLES)
    assert {check.status for check in skipped} == {"skip"}
    assert target.n_executed == results.requests["target"]


def test_lines() -> None:
    made = checked(unseen.FakeTarget(TEXTS))
    assert in_a_line(made["template"]).split()[:1] == ["preflight"]
    assert " – " in in_a_line(made["adapter_effect"])
    refuse(list(made.values()))


class _Sampling(unseen.FakeTarget):
    """Answers otherwise each time, and tells first choices of one token later."""

    n = 0

    def generate(self, prompts, **how):
        self.n += 1
        return [[token + self.n % 2 for token in made] for made in super().generate(prompts, **how)]

    def execute(self, batch):
        return [
            replace(answer, argmax=np.roll(answer.argmax, 1)) for answer in super().execute(batch)
        ]


@pytest.mark.parametrize("access", [Access.TEXT, Access.LABEL])
def test_what_lower_rungs_tell_is_checked_too(access) -> None:
    sound = statuses(checked(LimitedTarget(unseen.FakeTarget(TEXTS), access)))
    told = "pass" if access == Access.LABEL else "skip"
    assert sound == {
        "template": "pass", "logprobs_real": "skip", "teacher_forced": told,
        "batch_invariance": "pass", "adapter_effect": "skip",
    }  # fmt: skip
    broken = statuses(checked(LimitedTarget(_Sampling(TEXTS), access)))
    which = "teacher_forced" if access == Access.LABEL else "batch_invariance"
    assert broken == sound | {which: "fail"}


def test_a_target_that_writes_nothing_is_stopped() -> None:
    class Mute(unseen.FakeTarget):
        def generate(self, prompts, **how):
            return [[] for _ in prompts]

    found = checked(LimitedTarget(Mute(TEXTS), Access.TEXT))["batch_invariance"]
    assert found.status == "fail"
    assert "nothing comes after" in found.detail
