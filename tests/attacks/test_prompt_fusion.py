import dataclasses

import numpy as np
from scripted import Scripted, copying, played

from unseen import attacks
from unseen.attacks.base import Known
from unseen.attacks.fusion import Fusion
from unseen.attacks.prompt_fusion import PromptFusion
from unseen.prompts.trials import Game
from unseen.runs.fused import gathered, obstacles, sources
from unseen.signals.scores import AttackScores, Said

RUN = [
    attacks.create(spec)
    for spec in (
        "gap", "gap[mode=choice]", "inquiry", "repeat[encoder=letters]", "posterior",
        "brainwash", "brainwash[calibrate=True]", "prompt_fusion", "writing",
    )
]  # fmt: skip
TEXT_ONLY = ("gap", "inquiry", "repeat[encoder=letters]", "brainwash")


def test_it_learns_from_attacks_that_need_text_alone() -> None:
    assert sources(PromptFusion(), RUN) == TEXT_ONLY
    assert set(sources(Fusion(), RUN)) > set(TEXT_ONLY)
    assert obstacles(RUN) == {}
    assert "prompt_fusion" in obstacles([one for one in RUN if one not in RUN[2:6]])


def test_it_weighs_as_fusion_does(observed) -> None:
    rng = np.random.default_rng(0)
    said = {f"r{i:02d}": Said(rng.normal(size=3), np.ones(3, dtype=bool)) for i in range(30)}
    member = np.arange(20) % 2 == 0
    seen = observed({AttackScores(): said, AttackScores(text_only=True): said})
    known = Known(seen.select(seen.ids[:20]), member)
    one, other = (
        attack.score(seen.select(seen.ids[20:]), known) for attack in (PromptFusion(), Fusion())
    )
    assert one.values.tolist() == other.values.tolist()
    assert len(one.ids) == 10


def test_it_is_no_worse_than_the_best_of_them_where_that_tells_all() -> None:
    asking = [attacks.create(spec) for spec in TEXT_ONLY]
    signals = [signal for attack in asking for signal in attack.signals()]
    found = played(signals, Scripted(copying), game=Game(trials=16, shots=2))
    made = {attacks.label(attack): found.scores(attack) for attack in asking}
    fused = gathered(PromptFusion(), asking, made, found.observations)
    assert dataclasses.replace(found, observations=fused).auc(PromptFusion()) == 1
