from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
import records
import tiny
import yaml

import unseen
from unseen.errors import AccessError, ConfigError, StoreError, UnseenError
from unseen.runs.folder import RunFolder
from unseen.runs.results import Results
from unseen.targets.access import Access

ATTACKS = ("loss", "zlib", "min_k", "min_k_pp", "reference")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return records.sides(tmp_path / "data", 40, plant=True)


def leaky(members: Path, **options) -> unseen.FakeTarget:
    texts = [json.loads(line)["completion"] for line in members.read_text().splitlines()]
    return unseen.FakeTarget(texts[:-5], strength=1.0, **options)


@pytest.fixture
def audit(files, tmp_path):
    members, nonmembers = files

    def run(target=None, **choices):
        given = {
            "members": str(members),
            "nonmembers": str(nonmembers),
            "attacks": ATTACKS,
            "run_dir": tmp_path / "run",
            "cache_dir": tmp_path / "cache",
            "bootstrap": 200,
            "fpr": (0.1,),
        }
        return unseen.audit_finetune(target or leaky(members), **(given | choices))

    return run


def without_times(results: Results) -> dict:
    dumped = results.model_dump(mode="json")
    for name in ("id", "created", "seconds"):
        dumped["run"].pop(name)
    return dumped


def test_a_model_that_remembers_is_found_and_the_one_before_is_clear(audit) -> None:
    results = audit(control="all").results
    by_name = {row.name: row for row in results.attacks}
    assert by_name["loss"].auc.ci[0] > 0.8
    assert results.headline is not None
    assert results.headline.found
    assert results.control
    for row in (*results.control, by_name["bag_of_words"]):
        assert row.auc.ci[0] < 0.5 < row.auc.ci[1], row.name


def test_the_run_folder_holds_what_the_documentation_says(audit, files) -> None:
    with_known = (*ATTACKS, "recall")
    folder = audit(attacks=with_known).folder
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert {
        "run.json",
        "config.yaml",
        "results.json",
        "records.parquet",
        "report.md",
        "manifest.sha256",
        "data/dropped.csv",
    } <= names
    schema = Results.model_json_schema()
    jsonschema.validate(json.loads((folder / "results.json").read_text()), schema)
    assert (folder.parent / "latest").resolve() == folder.resolve()
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert unseen.FinetuneAudit(**config).attacks == with_known
    about = json.loads((folder / "run.json").read_text())
    assert about["status"] == "complete"
    assert len(about["attempts"]) == 1
    assert about["data"]["members"]["sha256"]
    table = pq.read_table(folder / "records.parquet")
    assert {"id", "member", "fold", "n_tokens", "score.loss", "population_fpr.loss"} <= set(
        table.column_names
    )
    assert table.num_rows == 40 + 40 - 2 * 7 + 7  # recall knows 7 non-members, not judged


KEYS = {
    "OPENAI_API_KEY": "sk-planted-0123456789",
    "HF_TOKEN": "hf_planted_abcdefghij",
    "VLLM_API_KEY": "planted-token-zyxwv",
}


def test_no_text_of_a_record_and_no_key_is_kept(audit, tmp_path, files, monkeypatch, capfd) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    folder = audit(keep_tokens=True, note=said.append).folder
    unseen.score_run(folder, fpr=(0.2,))
    formats = ("html", "md", "json", "csv", "modelcard")
    rendered = "".join(unseen.report_run(folder, format_) for format_ in formats)
    kept = [
        file
        for file in tmp_path.rglob("*")
        if file.is_file() and tmp_path / "data" not in file.parents
    ]
    assert {file.suffix for file in kept} >= {".html", ".md", ".json", ".parquet", ".sqlite"}
    everything = b"".join(file.read_bytes() for file in kept)
    # Parquet is compressed: its cells are looked at as they are read.
    everything += "".join(
        str(pq.read_table(file).to_pydict()) for file in kept if file.suffix == ".parquet"
    ).encode()
    everything += "".join([rendered, *said, *capfd.readouterr()]).encode()
    secrets = [records.planted(i) for i in range(records.N_PLANTED)] + list(KEYS.values())
    assert len(secrets) >= 53
    assert not [secret for secret in secrets if secret.encode() in everything]


def test_revealed_text_is_in_the_table_of_records(audit) -> None:
    table = pq.read_table(audit(reveal=True).folder / "records.parquet")
    assert any(records.planted(0) in text for text in table["text"].to_pylist())


def test_the_same_call_again_gives_the_same_and_asks_nothing(audit, files) -> None:
    first = audit()
    target = leaky(files[0])
    again = audit(target)
    assert target.n_executed == 0
    assert without_times(first.results) == without_times(again.results)
    assert len(json.loads((again.folder / "run.json").read_text())["attempts"]) == 2


def test_another_audit_does_not_write_into_a_run_folder(audit) -> None:
    audit()
    with pytest.raises(ConfigError, match="holds another audit"):
        audit(seed=1)


def test_a_folder_with_other_things_is_not_written_into(audit, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="not empty"):
        audit(run_dir=tmp_path / "mine")


def test_scoring_again_without_the_model_gives_the_same(audit) -> None:
    first = audit()
    table = pq.read_table(first.folder / "records.parquet")
    again = unseen.score_run(first.folder)
    before, after = without_times(first.results), without_times(again.results)
    assert before["attacks"] == after["attacks"]
    assert before["control"] == after["control"]
    assert before["headline"] == after["headline"]
    assert table.drop(["n_tokens"]).equals(
        pq.read_table(first.folder / "records.parquet").drop(["n_tokens"])
    )


def test_scoring_again_with_other_fields(audit) -> None:
    first = audit(keep_tokens=True)
    again = unseen.score_run(first.folder, ["min_k[k=0.5]"], fpr=(0.2,))
    names = [row.name for row in again.results.attacks]
    assert names[0] == "min_k[k=0.5]"
    assert "bag_of_words" in names
    assert [at.fpr for at in again.results.attacks[0].tpr_at_fpr] == [0.2]
    with pytest.raises(ConfigError, match="has not measured"):
        unseen.score_run(first.folder, ["con_recall"])


def test_a_lower_access_leaves_out_what_it_forbids(audit) -> None:
    results = audit(attacks=("default",), access="logprob").results
    assert "min_k_pp" in results.skipped
    assert "loss" in {row.name for row in results.attacks}
    with pytest.raises(AccessError, match="min_k_pp"):
        audit(attacks=("min_k_pp",), access="logprob", run_dir=None)
    with pytest.raises(AccessError):
        audit(access="text", run_dir=None)


def test_text_alone_is_enough_for_attacks_that_need_no_more(audit, files, tmp_path) -> None:
    text = {"access": "text", "attacks": ("samia[samples=4]", "default")}
    target = leaky(files[0])
    target._strength = 16.0
    first = audit(target, **text)
    samia = first.results.attacks[0]
    assert samia.auc.ci[0] > 0.6
    assert {row.kind for row in first.results.attacks[1:]} == {"blind"}
    assert "it needs logprob access, the target gives text" in first.results.skipped["loss"]
    assert first.results.requests["target"] == target.n_generated - 5 - 5 - 1
    kept = [file.name for file in (first.folder / "signals").iterdir()]
    assert [name.partition("-")[0] for name in kept] == ["recited_words"]
    again = audit(target, **text, run_dir=tmp_path / "again", preflight=False)
    assert again.results.attacks[0] == samia
    assert json.loads((again.folder / "run.json").read_text())["attempts"][-1][
        "requests_scored"
    ] == {"target": 0, "reference": 0}
    rescored = unseen.score_run(first.folder, attacks=("samia[samples=4,zlib=True]",))
    assert {"samia[samples=4]", "samia[samples=4,zlib=True]"} <= {
        row.name for row in rescored.results.attacks
    }


def test_first_choices_are_enough_for_petal(audit, files, tmp_path) -> None:
    both = tmp_path / "both.jsonl"  # a surrogate that knows the language
    both.write_text("".join(file.read_text() for file in files))
    label = {"access": "label", "attacks": ("petal", "icp_sp[likelihood=petal,probes=2]")}
    target = leaky(files[0])
    target._strength = 16.0
    done = audit(target, **label, surrogate=f"fake/{both}", reference="none")
    rows = {row.name: row for row in done.results.attacks}
    assert sum(rows["petal"].n) > 50
    assert rows["petal"].auc.value > 0.6
    assert set(done.results.requests) == {"target", "surrogate"}
    kept = {file.name.partition("-")[0] for file in (done.folder / "signals").iterdir()}
    assert "token_similarity" not in kept, "first choices spell the text out"
    about = json.loads((done.folder / "run.json").read_text())
    assert set(about["models"]) == {"target", "surrogate"}


def test_variants_of_a_generator_are_used_and_not_kept(audit, tmp_path, monkeypatch) -> None:
    wrote = "a zebra in the library"
    monkeypatch.setattr(
        unseen.FakeTarget,
        "generate",
        lambda self, prompts, *, numbers=None, **_: [
            [*f"{wrote} {n}".encode(), 257] for n in numbers or [0] * len(prompts)
        ],
    )
    spec = "icp_sp[probes=2,source=generate]"
    done = audit(attacks=(spec,), generator="fake/", reference="none", preflight=False)
    (row, *_) = done.results.attacks
    assert row.name == spec
    assert sum(row.n) == 80
    assert done.results.requests == {"target": 240, "generator": 160}
    for file in done.folder.rglob("*"):
        assert not file.is_file() or b"zebra" not in file.read_bytes()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"attacks": ("petal",)}, "it needs a surrogate.*: --surrogate MODEL, or --reference"),
        ({"attacks": ("icp_sp[source=generate]",)}, "it needs a generator.*: --generator MODEL"),
        ({"surrogate": "fake/"}, "--surrogate is read by petal"),
        ({"generator": "fake/"}, "--generator is read by icp_sp"),
        (
            {"attacks": ("petal[similarity=./nowhere]",), "surrogate": "fake/"},
            "cannot load the sent",
        ),
    ],
)
def test_what_attacks_need_beside_the_target_is_said(audit, choices, message) -> None:
    with pytest.raises(UnseenError, match=message):
        audit(**({"attacks": ("loss",), "reference": "none"} | choices))


def test_where_no_attack_is_left_one_that_can_be_run_is_named(audit) -> None:
    with pytest.raises(AccessError, match="no attack is left") as raised:
        audit(access="text", attacks=("default",))
    assert raised.value.fix == "--attacks samia"


def test_access_is_not_raised(audit, files) -> None:
    target = leaky(files[0], access=Access.LOGPROB)
    with pytest.raises(ConfigError, match="cannot raise"):
        audit(target, access="weights")


def test_few_records_are_scored_but_not_judged(audit, tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path / "few", 6)
    results = audit(
        leaky(members),
        members=str(members),
        nonmembers=str(nonmembers),
        attacks=("loss",),
        run_dir=tmp_path / "few-run",
    ).results
    row = results.attacks[0]
    assert row.auc is None
    assert "10" in (row.note or "")
    assert results.headline is None
    table = pq.read_table(tmp_path / "few-run" / "records.parquet")
    assert None not in table["score.loss"].to_pylist()


def test_records_on_both_sides_are_dropped_and_listed(audit, tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path / "both", 30)
    rows = [json.loads(line) for line in members.read_text().splitlines()]
    more = [json.loads(line) for line in nonmembers.read_text().splitlines()]
    twins = [{**row, "id": f"twin-{row['id']}"} for row in rows[:3]]
    records.write(nonmembers, more + twins)
    audited = audit(
        leaky(members),
        members=str(members),
        nonmembers=str(nonmembers),
        attacks=("loss",),
        run_dir=tmp_path / "dropped-run",
    )
    assert audited.results.data.dropped == {"exact_duplicate": 6}
    dropped = (audited.folder / "data" / "dropped.csv").read_text()
    assert f"twin-{rows[0]['id']}" in dropped


def test_slices_and_clusters(audit, tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path / "groups", 60)
    for file in (members, nonmembers):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        records.write(file, [row | {"author": f"{i // 2}"} for i, row in enumerate(rows)])
    given = {
        "members": str(members),
        "nonmembers": str(nonmembers),
        "attacks": ("loss",),
        "slice_by": ("file",),
    }
    audited = audit(leaky(members), **given, cluster_by="author", run_dir=tmp_path / "groups-run")
    assert {part.value for part in audited.results.slices} == {"health", "work"}
    assert all(part.auc is not None or part.note for part in audited.results.slices)
    table = pq.read_table(audited.folder / "records.parquet").to_pydict()
    fold = dict(zip(table["cluster"], table["fold"], strict=True))
    assert [fold[cluster] for cluster in table["cluster"]] == table["fold"]
    few = audit(leaky(members), **given, cluster_by="file", run_dir=tmp_path / "few-clusters")
    assert few.results.headline is None
    assert "clusters" in few.results.attacks[0].note


def test_one_way_to_give_records(files) -> None:
    data = unseen.Records.from_files(*files)
    with pytest.raises(ConfigError, match="twice"):
        unseen.audit_finetune(unseen.FakeTarget(), data, members=str(files[0]))
    with pytest.raises(ConfigError) as caught:
        unseen.audit_finetune()
    for what in ("--model", "--members", "--nonmembers"):
        assert what in caught.value.problem


def test_pandas_and_reports(audit, tmp_path) -> None:
    audited = audit()
    top = audited.to_pandas().nlargest(5, "score.loss")
    assert top["member"].all()
    assert "text" not in top
    assert "AUC" in audited.report(tmp_path / "r.md").read_text()
    assert json.loads(audited.report(tmp_path / "r.json").read_text())["schema_version"] == "1.0"
    with pytest.raises(ConfigError, match=r"\.md or \.json"):
        audited.report(tmp_path / "r.doc")


def test_a_stopped_run_is_continued_in_its_own_folder_not_through_the_link(audit, tmp_path) -> None:
    first = audit(run_dir=None, runs=tmp_path / "runs")
    about = json.loads((first.folder / "run.json").read_text())
    (first.folder / "run.json").write_text(json.dumps(about | {"status": "running"}))
    again = audit(run_dir=None, runs=tmp_path / "runs")
    assert again.folder == first.folder
    assert (tmp_path / "runs" / "latest").resolve() == first.folder.resolve()


def test_ranks_are_not_kept(audit) -> None:
    kept = audit(keep_tokens=True).folder / "signals"
    for file in kept.glob("*.parquet"):
        assert not {"rank", "argmax"} & set(pq.read_table(file).column_names)


def test_a_device_that_is_not_there(tmp_path) -> None:
    tiny.folder(tmp_path / "m")
    with pytest.raises(unseen.UnseenError, match="no device"):
        unseen.HFTarget(tmp_path / "m", device="tpu")


def test_values_of_single_tokens_are_kept_only_where_asked_for(audit) -> None:
    first = audit(control="all")
    assert not list((first.folder / "signals").glob("token_statistics*"))
    again = unseen.score_run(first.folder, fpr=(0.2,))
    before = {row.name: row.auc for row in (*first.results.attacks, *first.results.control)}
    assert {row.name: row.auc for row in (*again.results.attacks, *again.results.control)} == before
    with pytest.raises(ConfigError, match="not kept") as caught:
        unseen.score_run(first.folder, ["min_k[k=0.5]"])
    assert "min_k[k=0.5]'" in caught.value.fix


@pytest.mark.parametrize("name", ["results.json", "records.parquet", "run.json", "config.yaml"])
def test_a_changed_run_is_not_scored_again(audit, name) -> None:
    first = audit()
    file = first.folder / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(StoreError, match=f"{name} was changed"):
        unseen.score_run(first.folder)
    file.unlink()
    with pytest.raises((StoreError, ConfigError), match=f"{name} is missing|no run.json"):
        unseen.score_run(first.folder)


def test_a_run_without_a_manifest_has_not_ended(audit, tmp_path) -> None:
    first = audit(run_dir=None, runs=tmp_path / "runs")
    (first.folder / "manifest.sha256").unlink()
    with pytest.raises(StoreError, match="did not end"):
        unseen.score_run(first.folder)
    assert audit(run_dir=None, runs=tmp_path / "runs").folder == first.folder


def test_one_process_at_a_time_works_in_a_folder(audit, tmp_path) -> None:
    inside = []

    def second(what: str, done: int, total: int) -> None:
        if not inside:
            inside.append(what)
            with pytest.raises(ConfigError, match="another process"):
                audit(run_dir=None, runs=tmp_path / "runs")

    first = audit(run_dir=None, runs=tmp_path / "runs", progress=second)
    assert inside
    assert unseen.score_run(first.folder).folder == first.folder
    with RunFolder(first.folder).locked(), pytest.raises(ConfigError, match="another process"):
        unseen.score_run(first.folder)


def test_equal_texts_of_a_side_are_judged_as_one_group(audit, tmp_path) -> None:
    rows = [
        {"text": f"{'seen' if i % 2 else 'read'} {i // 4} {i // 4 * 7} alike"} for i in range(160)
    ]
    sides = []
    for side, part in (("m", rows[:80]), ("n", rows[80:])):
        sides.append(tmp_path / f"{side}.jsonl")
        records.write(sides[-1], part)
    audited = audit(
        unseen.FakeTarget(),
        members=str(sides[0]),
        nonmembers=str(sides[1]),
        attacks=("loss",),
        run_dir=tmp_path / "twins",
    )
    table = pq.read_table(audited.folder / "records.parquet").to_pydict()
    assert len(set(table["cluster"])) == 80
    fold = dict(zip(table["cluster"], table["fold"], strict=True))
    assert [fold[cluster] for cluster in table["cluster"]] == table["fold"]
    assert audited.results.data.repeated == (40, 40)


def test_where_nothing_is_scored_the_finding_says_so(audit) -> None:
    results = audit(max_length=2, attacks=("loss",)).results
    assert results.headline is None
    assert "no attack has scored any record" in results.headline_note


@pytest.mark.parametrize(
    "given", [{"slice_by": ("completion",)}, {"id_column": "completion"}, {"cluster_by": "prompt"}]
)
def test_columns_with_text_name_no_groups(audit, given) -> None:
    with pytest.raises(ConfigError, match="is the records' text"):
        audit(**given)


def test_a_column_with_a_value_for_each_record_makes_no_groups(audit) -> None:
    with pytest.raises(ConfigError, match="no groups"):
        audit(slice_by=("id",))
