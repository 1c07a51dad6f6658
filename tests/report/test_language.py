from __future__ import annotations

import re

import pytest
import reports

from unseen.report import language as say
from unseen.runs.results import Validity


def test_outcomes_are_sentences_never_numbers_alone() -> None:
    found = reports.results()
    clear = found.headline.model_copy(update={"found": False, "sentence": "Nothing stands out."})
    cases = {
        "found": (found, reports.SENTENCE),
        "clear": (reports.results(headline=clear), "Nothing stands out."),
        "refused": (reports.invalid(), say.VERDICTS["invalid"]),
        "none": (reports.results(headline=None, headline_note="too few"), "Too few."),
    }
    for tone, (results, sentence) in cases.items():
        outcome = say.outcome(results)
        assert (outcome.tone, outcome.sentence) == (tone, sentence)
        assert outcome.sentence.endswith(".")


def test_caution_is_in_the_label_with_its_reasons() -> None:
    outcome = say.outcome(reports.results())
    assert outcome.label == "Leakage found, with caution"
    assert outcome.reasons == ("overlap: what overlap found",)
    valid = say.outcome(reports.results(validity=Validity(verdict="valid")))
    assert valid.label == "Leakage found"


def test_a_refused_finding_is_no_finding() -> None:
    assert say.headline(reports.results()) is not None
    assert say.headline(reports.invalid()) is None
    assert say.how_found(reports.invalid()) is None
    assert say.top_of(reports.invalid()) is None


@pytest.mark.parametrize("make", [reports.results, reports.invalid])
def test_every_audience_is_spoken_to(make) -> None:
    results = make()
    lead, _ = say.for_engineers(results)
    assert lead
    assert say.for_privacy_officers(results)
    assert say.for_researchers(results, {"folds": 2, "bootstrap": 500})


def test_advice_names_its_source_and_what_is_known_here() -> None:
    _, advice = say.for_engineers(reports.results())
    assert len(advice) == 5
    assert all(re.search(r"arXiv:\d{4}\.\d{5}", one.paper) for one in advice)
    assert "4 judged members occur more than once" in advice[0].text
    assert say.for_engineers(reports.invalid())[1] == ()


def test_open_weights_give_more_than_was_tested() -> None:
    model = reports.results().threat_model.model_copy(update={"release_context": "open-weights"})
    lines = say.for_privacy_officers(reports.results(threat_model=model))
    assert any("more than was tested" in line for line in lines)


def test_bibtex_has_an_entry_a_paper() -> None:
    rows = [
        reports.attack("a", 0.5, paper="Yeom et al. 2018, arXiv:1709.01604"),
        reports.attack("b", 0.5, paper="Yeom et al. 2018, arXiv:1709.01604"),
        reports.attack("c", 0.5, paper="Doe and Roe 2027, arXiv:2701.00001"),
        reports.attack("d", 0.5, paper="folklore"),
    ]
    text = say.bibtex(rows)
    assert text.count("@misc{") == 2
    assert "author = {Yeom and others}" in text
    assert "title = {{Privacy Risk in Machine Learning" in text
    assert text.count("{") == text.count("}")


def test_every_paper_of_our_attacks_has_a_title() -> None:
    from unseen.attacks import create, default

    papers = [create(spec).paper for spec in default()]
    entries = say.bibtex(reports.attack("a", 0.5, paper=paper) for paper in papers)
    assert entries.count("@misc{") == len(set(papers))
    assert "title = {{arXiv:" not in entries


def test_canaries_are_spoken_of_as_canaries() -> None:
    run = reports.results().run.model_copy(update={"scenario": "canary"})
    results = reports.results(run=run, epsilon=reports.bound())
    assert "Canaries are trained on once" in say.for_engineers(results)[1][0].text
    assert any("nobody's personal data" in line for line in say.for_privacy_officers(results))


def test_a_brief_bound_keeps_what_it_is() -> None:
    value, what = say.epsilon(reports.bound(), brief=True)
    assert value == "ε ≥ 2.30"
    assert what == "lower bound, 95 % confidence, δ = 1e-05, 91 of 100 guesses right"
    assert say.epsilon(reports.bound())[1] == f"{what}; one run"
    assert "not a bound" in say.epsilon(reports.bound("indicative"), brief=True)[1]
