from __future__ import annotations

import pytest
import reports
import yaml

from unseen.report.modelcard import model_index, render


def test_the_hub_reads_back_what_is_written() -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(render(reports.results(target={"model": "org/name"})))
    assert card.data.model_name == "name"
    read = {result.metric_type: result for result in card.data.eval_results}
    assert read["tpr@fpr=0.1"].metric_value == 0.4
    assert read["tpr@fpr=0.1"].metric_args["interval"] == pytest.approx([0.3, 0.5])
    assert read["auc"].metric_value == 0.9
    assert {result.dataset_type for result in read.values()} == {"private"}
    written = hub.repocard_data.eval_results_to_model_index("name", card.data.eval_results)
    assert written == [model_index(reports.results(target={"model": "org/name"}))]


def test_the_section_says_the_sentence_and_the_evidence() -> None:
    text = render(reports.results())
    front, _, section = text.removeprefix("---\n").partition("---\n")
    assert list(yaml.safe_load(front)) == ["model-index"]
    for part in (reports.SENTENCE, "Evidence: caution", "[30.0%, 50.0%]", "only these records"):
        assert part in section
    assert "<script>" not in section


def test_a_refusal_has_no_numbers() -> None:
    text = render(reports.invalid())
    assert "model-index" not in text
    assert "Refused" in text
    assert "40" not in text.replace("40 non-members", "")
