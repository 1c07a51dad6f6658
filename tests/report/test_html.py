from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
import reports

from unseen.errors import ConfigError, short, visible
from unseen.report.html import FEWER_ROWS, MOST_ROWS, STATIC_ROWS, render

SECTIONS = (
    "Is the evidence valid?", "How well do the attacks work?", "Which records are exposed?",
    "Which groups?", "What does it mean?", "Cost and coverage", "Provenance", "Limits",
)  # fmt: skip
VOID = {"meta", "input", "br", "link", "img"}


class Outline(HTMLParser):
    """What a browser would make of the page: elements in order, ids, and text outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.faults: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += f" {data}"


def words(page: str) -> str:
    return " ".join(Outline(page).text.split())


def embedded(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="records-data">(.*?)</script>', page)
    assert found is not None
    data = json.loads(found[1])
    columns = [
        one.get("values") or [one["of"][place] for place in one["at"]] for one in data["columns"]
    ]
    return dict(zip(data["names"], columns, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return reports.folder(tmp_path_factory.mktemp("runs") / "r")


@pytest.fixture(scope="module")
def page(run) -> str:
    return render(run, run.read_results())


def test_every_section_in_order(page) -> None:
    titles = re.findall(r"<h2[^>]*>.*?</span> (.*?)</h2>", page)
    assert tuple(titles) == SECTIONS


def test_the_markup_is_whole_and_its_ids_are_unique(page) -> None:
    outline = Outline(page)
    assert outline.faults == []
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    referred = {value for _, name, value in outline.attributes if name == "aria-labelledby"}
    assert referred <= set(outline.ids)


def test_the_title_is_a_sentence_and_tiles_have_intervals(page) -> None:
    assert f"<h1>{reports.SENTENCE}</h1>" in page
    text = words(page)
    for part in (
        "Leakage found, with caution", "Members identified at 10% FPR 40.0%", "30.0% to 50.0%",
        "50 members", "AUC of strong 0.900", "without any model (blind): 0.500",
        "not measured", "Evidence caution", "1 passed · 1 warning · 1 not checked",
    ):  # fmt: skip
        assert part in text, part


def test_checks_say_what_was_found_and_what_to_do(page) -> None:
    text = words(page)
    for part in (
        "measured 0.5 [0.4, 0.6] must hold at most 0.6", "Blind baseline blind_baseline What",
        "What overlap found.", "What to do: Look at <b>dropped.csv</b>.", "not checked",
    ):  # fmt: skip
        assert part in text, part
    # What stands in the way comes first.
    assert text.index("What overlap") < text.index("What split_origin") < text.index("What blind")


def test_what_there_is_to_know_is_there(page) -> None:
    text = words(page)
    for part in (
        "blind: words", "control: strong", "chance", "cannot be resolved", "indicative",
        "6 of 50 members score above every non-member", "not the probability that this record",
        "scored tokens 90 41 0.80 < 0.001", "too few", "unseen compare RUN_BEFORE RUN_AFTER",
        "4 judged members occur more than once", "attacker's access logit", "AML.T0024.000",
        "no conformity", "attribute inference", "@misc{doe2027270100001", "2 stratified folds",
        "tokens read by the target 777", "7 near duplicate", "3 × too short", "it needs logits",
        "content: 31 tokens", "numpy 2.4", "unseen audit finetune --config runs/r/config.yaml",
        "only these records",
    ):  # fmt: skip
        assert part in text, part


def test_a_refusal_has_no_headline_anywhere(run) -> None:
    found = reports.invalid(epsilon=reports.bound())
    page = render(run, found)
    text = words(page)
    assert "Refused: the evidence is invalid" in text
    assert "The two files differ without any model." in text
    assert text.index("The two files differ") < text.index("Is the evidence valid?")
    assert "What to do: Hold out at random." in text
    for part in (reports.SENTENCE, "40.0% of", "Members identified at", "AUC of strong", "►",
                 "score above every", "How the finding was made", "ε ≥",
                 'id="records-data"', "chosen:"):  # fmt: skip
        assert part not in page, part
    assert "Members identified not reported" in text


def test_no_checks_and_no_finding_are_said(run) -> None:
    found = reports.results(
        checks=(), validity=None, headline=None, headline_note="too few records", exposed=None
    )
    text = words(render(run, found))
    assert "Too few records." in text
    assert "No checks are recorded in this run" in text
    assert "Evidence not assessed" in text


def test_a_bound_is_a_bound_and_anything_else_is_not(run) -> None:
    assert "ε ≥ 2.30" in words(render(run, reports.results(epsilon=reports.bound())))
    other = words(render(run, reports.results(epsilon=reports.bound("indicative"))))
    assert "ε ≥" not in other
    assert "indicative, not a bound" in other


def test_nothing_is_asked_for(page) -> None:
    outline = Outline(page)
    policy = next(value for _, name, value in outline.attributes
                  if name == "content" and "default-src" in value)  # fmt: skip
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    links = [(tag, name, value) for tag, name, value in outline.attributes
             if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset")]  # fmt: skip
    assert links
    assert all(value.startswith("#") for _, _, value in links)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(outline.tags)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_figures_have_words(page) -> None:
    labels = [value for _, name, value in Outline(page).attributes if name == "aria-label"]
    assert any("ROC curves" in label and "strong, attack: AUC 0.900" in label for label in labels)
    assert any("Histogram of the scores of strong" in label for label in labels)
    assert page.count('<svg aria-hidden="true" focusable="false" class="plot"') == 2


def test_the_same_folder_gives_the_same_bytes(run, page) -> None:
    assert render(run, run.read_results()) == page


def test_rows_are_those_of_the_table(run, page) -> None:
    table = run.read_table("records.parquet").to_pydict()
    order = sorted(range(90), key=lambda i: -table["score.strong"][i])
    found = embedded(page)
    assert found["id"] == [table["id"][i] for i in order]
    assert found["side"] == [int(table["member"][i]) for i in order]
    assert found["score"] == pytest.approx([table["score.strong"][i] for i in order], abs=1e-3)
    others = [s for s, m in zip(table["score.strong"], table["member"], strict=True) if not m]
    slow = [sum(other >= table["score.strong"][i] for other in others) / 40 for i in order]
    assert found["population FPR"] == pytest.approx(slow, rel=1e-2)
    assert found["file"] == [table["slice.file"][i] for i in order]
    body = page[page.index("<tbody>", page.index('id="records-table"')) :]
    static = re.findall(r"<tr><td><bdi>(.*?)</bdi>", body[: body.index("</tbody>")])
    members = [i for i in order if table["member"][i]][:STATIC_ROWS]
    assert static == [table["id"][i] for i in members]
    assert "<bdi>&lt; 2.5%</bdi>" in body  # above all of 40: no more can be said
    assert "<bdi>0.0%</bdi>" not in body


HOSTILE = {
    0: "<script>alert(1)</script>",
    1: "\u202egnp.exe",
    2: "x" * 10_000,
    3: "</script><!--",
    4: "שלום\u2028مرحبا",
    5: "a\x00\x1b[2J'\"&",
}


def test_hostile_ids_are_text(tmp_path) -> None:
    page = render(run := reports.folder(tmp_path / "r", ids=HOSTILE), run.read_results())
    outline = Outline(page)
    assert outline.faults == []
    assert outline.tags.count("script") == 2
    assert "alert(1)</script>" not in page
    for char in "\u202e\u2028\x00\x1b":
        assert char not in page
    assert "x" * 60 not in page
    ids = embedded(page)["id"]
    for id_ in HOSTILE.values():
        assert visible(short(" ".join(id_.split()), 48)) in ids
    assert "bdi" in outline.tags


def test_text_is_shown_only_where_it_is_asked_for_and_kept(tmp_path, run) -> None:
    kept = reports.folder(tmp_path / "kept", text=True)
    assert "secret of" not in render(kept, kept.read_results())
    revealed = render(kept, kept.read_results(), reveal=True)
    assert "secret of 7 &lt;b&gt;" in revealed
    with pytest.raises(ConfigError, match="holds no text"):
        render(run, run.read_results(), reveal=True)


def test_ten_thousand_records_fit_into_half_a_megabyte(tmp_path) -> None:
    ids = {i: f"3f2b8c{i:06d}-9a41-4c6e-8d57-0123456789ab"[:36] for i in range(MOST_ROWS)}
    run = reports.folder(tmp_path / "r", n=(5000, 5000), ids=ids)
    page = render(run, run.read_results())
    assert len(page.encode()) <= 500_000
    run = reports.folder(tmp_path / "plain", n=(5000, 5000))
    page = render(run, run.read_results())
    assert len(page.encode()) <= 500_000
    assert len(embedded(page)["id"]) == MOST_ROWS
    assert "All 10,000 scored records are embedded" in words(page)


def test_of_more_records_the_highest_are_embedded(tmp_path) -> None:
    run = reports.folder(tmp_path / "r", n=(6000, 4001))
    page = render(run, run.read_results())
    assert len(page.encode()) <= 500_000
    scores = embedded(page)["score"]
    assert len(scores) == FEWER_ROWS
    assert scores == sorted(scores, reverse=True)
    assert "The top 5,000 of 10,001 scored records" in words(page)


def test_a_run_without_scores_says_so(tmp_path) -> None:
    nothing = reports.attack("strong", None, n=(0, 0), tpr_at_fpr=())
    found = reports.results(
        attacks=(nothing,), control=(), headline=None, headline_note="no attack has scored any record",
        exposed=None, slices=(), data=None, checks=(), validity=None, threat_model=None,
    )  # fmt: skip
    run = reports.folder(tmp_path / "r", found)
    text = words(render(run, found))
    assert "No attack has scored any record." in text
    assert "No attack has scored a record." in text
