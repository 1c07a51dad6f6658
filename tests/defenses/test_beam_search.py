"""Beam search, on tiny real models, against one that is written out."""

import numpy as np
import pytest
import tiny
import torch
from scripted import Scripted

from unseen.defenses import create
from unseen.errors import AccessError, ConfigError
from unseen.targets.access import Access, searches_beams
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget
from unseen.targets.limited import LimitedTarget
from unseen.types import Sampling

ROOM = 5


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> HFTarget:
    return HFTarget(tiny.folder(tmp_path_factory.mktemp("model")), dtype="float64")


def slow(target: HFTarget, prompt: list[int], beams: int) -> list[int]:
    """The likeliest text of those followed: every step all next tokens of every text, one pass each."""
    followed: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(ROOM):
        longer = []
        for total, ids in followed:
            with torch.inference_mode():
                logits = target._model(torch.tensor([prompt + ids])).logits[0, -1].numpy()
            p = logits - np.logaddexp.reduce(logits)
            p[target.tokenizer.eos_id] = -np.inf  # no text ends before it has all its tokens
            longer += [(total + p[i], [*ids, int(i)]) for i in np.argsort(-p)[:beams]]
        followed = sorted(longer, key=lambda pair: -pair[0])[:beams]
    return followed[0][1]


@pytest.mark.parametrize("beams", [2, 4])
def test_what_is_found_is_the_likeliest_of_what_was_followed(target: HFTarget, beams: int) -> None:
    prompts = [target.tokenizer.encode(text) for text in ("The quick", "Mina Okafor of", "a")]
    defended = create(f"beam_search[beams={beams}]").target(target, {})
    asked = {"max_new_tokens": ROOM, "sampling": Sampling(fewest=ROOM)}
    found = defended.generate(prompts, **asked)
    assert found == [slow(target, prompt, beams) for prompt in prompts]
    assert found == [defended.generate([prompt], **asked)[0] for prompt in prompts]
    assert found != target.generate(prompts, **asked), (
        "this model's likeliest tokens lead elsewhere"
    )


def test_a_stop_cuts_what_was_found(target: HFTarget) -> None:
    prompt = target.tokenizer.encode("Mina Okafor of")
    defended = create("beam_search").target(target, {})
    (whole,) = defended.generate([prompt], max_new_tokens=ROOM, sampling=Sampling(fewest=ROOM))
    stop = target.tokenizer.decode(whole[:2])
    (cut,) = defended.generate(
        [prompt], max_new_tokens=ROOM, sampling=Sampling(fewest=ROOM), stop=stop
    )
    assert cut == whole[:2]


def test_only_a_model_that_runs_here_searches(target: HFTarget) -> None:
    assert searches_beams(LimitedTarget(target, Access.TEXT))
    create("beam_search+sampling").target(target, {})
    for other in (FakeTarget(), Scripted(str)):
        with pytest.raises(AccessError, match="has no beam search"):
            create("beam_search").target(other, {})


def test_beams_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected 2 or more"):
        create("beam_search[beams=1]")
    with pytest.raises(ValueError, match="got beams=2, expected 1, or more where temperature=0"):
        Sampling(1.0, beams=2)


def test_other_beams_have_other_answers(target: HFTarget) -> None:
    specs = ("beam_search", "beam_search[beams=2]", "sampling")
    assert len({create(spec).target(target, {}).fingerprint for spec in specs}) == 3
