import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from scripted import TREC, Played, played, pool

from unseen import attacks
from unseen.attacks.posterior import Posterior
from unseen.errors import ConfigError
from unseen.prompts.templates import PromptTemplate, as_chat
from unseen.prompts.trials import Case, Game
from unseen.signals.asked import Asked, TextLikelihood
from unseen.signals.labelled import Labelled, LabelLikelihoods
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget

X, Y = Posterior(), Posterior(of="y")


def test_text_is_scored_by_its_mean_and_a_label_as_a_whole(observed) -> None:
    seen = observed({Asked(): {"a": TextLikelihood(4, -6.0), "b": TextLikelihood(2, -np.inf)}})
    scores = X.score(seen)
    assert (scores.ids, scores.values.tolist()) == (("a",), [-1.5])
    assert scores.unscored == {"b": "a text has no finite likelihood"}
    likely = LabelLikelihoods(np.array([-3.0, -1.0]), 0)
    scores = Y.score(observed({Labelled(): {"a": likely, "b": "because"}}))
    assert (scores.values.tolist(), scores.unscored) == ([-3.0], {"b": "because"})


def slow(target, context: list[int], text: list[int]) -> float:
    """Mean log-probability, token by token."""
    total, ids = 0.0, list(context)
    for token in text:
        logits = target.logits(ids, len(ids) - 1)[0]
        total += logits[token] - np.logaddexp.reduce(logits)
        ids.append(token)
    return total / len(text)


def context_of(case: Case, template: PromptTemplate, encode) -> list[int]:
    if template.chat:
        shown = template.hidden(case.demos).rstrip()
        return encode(f"<|system|>{shown}<|end|><|user|>Question: ")
    return encode(f"<|begin|>{template.hidden(case.demos)}Question: ")


@pytest.mark.parametrize("template", [TREC, as_chat(TREC)])
def test_the_text_is_scored_where_it_is_said(template: PromptTemplate) -> None:
    target = FakeTarget(strength=4.0)
    found = played(X.signals(), target, game=Game(trials=3), template=template)
    scores = found.scores(X)
    for case, value in zip(found.cases, scores.values, strict=True):
        context = context_of(case, template, target.tokenizer.encode)
        assert value == pytest.approx(slow(target, context, list(case.example.text.encode())))
        assert found.observations.get(Asked(), case.id).n_tokens == len(case.example.text)


def test_it_tells_who_is_in_the_prompt_of_a_model_that_repeats_what_it_read() -> None:
    signals = [*X.signals(), *Y.signals()]

    def of(**choices) -> Played:
        return played(signals, FakeTarget(strength=16.0), game=Game(trials=15, shots=2), **choices)

    assert of().auc(X) == 1
    assert of().auc(Y) > 0.8
    assert abs(of(empty=True).auc(X) - 0.5) < 0.25
    assert abs(of(empty=True).auc(Y) - 0.5) < 0.25


def test_a_space_before_the_text_is_of_its_first_word(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "model", "llama"), dtype="float64")
    encode = target.tokenizer.encode
    examples = [dataclasses.replace(one, text=f"the dog {one.text}") for one in pool(12)]
    short = PromptTemplate("short", "", "Ask {input}\n:", "Ask {input}\n: {output}\n")
    found = played(X.signals(), target, game=Game(trials=3), examples=examples, template=short)
    for case in found.cases:
        asked = f"{short.hidden(case.demos)}Ask {case.example.text}"
        whole, before = encode(asked), encode(asked[: -len(case.example.text) - 1])
        assert target.tokenizer.decode(whole[len(before) :][:1]) == " the"
        assert whole[: len(before)] == before
        value = found.observations.get(Asked(), case.id)
        assert value.n_tokens == len(whole) - len(before)
        with torch.inference_mode():
            logits = target.model(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
        own = logits[range(len(before) - 1, len(whole) - 1), whole[len(before) :]]
        assert value.logprob == pytest.approx(float(own.sum()), abs=1e-6)


def test_fields_say_what_is_measured() -> None:
    assert attacks.create("posterior[of=y]").signals() == (Labelled(),)
    assert "posterior[of=y]" in attacks.default(scenario="prompt")
    with pytest.raises(ConfigError, match="got of='z', expected one of x, y"):
        attacks.create("posterior[of=z]")
