"""What a model writes round by round is the same however little it remembers."""

from pathlib import Path
from typing import Any

import pytest
import tiny

from unseen.data.templates import Layout, RecordEncoder
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.labels import Labels
from unseen.prompts.templates import Example, PromptTemplate
from unseen.prompts.trials import Game
from unseen.runs.collect import Cost, Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import TARGET, Observations, Shown
from unseen.signals.completed import Completed
from unseen.signals.flipped import FlippedChoice, FlippedText
from unseen.targets.huggingface import HFTarget

pytestmark = pytest.mark.slow

TEMPLATE = PromptTemplate(
    "animals",
    before="Which animal?\n\n",
    question="Q: {input}\nA:",
    demonstration="Q: {input}\nA: {output}\n\n",
    labels=Labels(("fox", "dog", "fever")),
)
WORDS = (
    "Mina", "owes", "412", "sleep", "over", "the", "lazy", "brown", "quick", "jumps", "March", "about",
)  # fmt: skip
POOL = [
    Example(f"r{i}", " ".join(WORDS[(i * j) % 12] for j in range(1, 7)), ("fox", "dog")[i % 2])
    for i in range(40)
]
SIGNALS = (
    FlippedText(cap=4),
    FlippedChoice(cap=4),
    Completed(longest=5, encoder="letters"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("models") / "llama", chat=False)


class Trial:
    """Cases behind prompts of a tiny model that remembers so many tokens; None: that reads all anew."""

    def __init__(self, folder: Path, room: int | None) -> None:
        self.target = HFTarget(folder, dtype="float64")
        if room is None:
            self.target.remembers = False
        else:
            assert self.target.memory_tokens > 0
            self.target._continuing.memory.most_bytes = room * self.target._token_bytes
        self.encoder = RecordEncoder(self.target.tokenizer, Layout(), limit=self.target.max_length)
        self.cases = Game(trials=8, shots=4).cases(POOL)

    def measured(self, store: Store, progress: Any = None) -> tuple[Observations, Cost]:
        behind = HiddenPrompts.of(TEMPLATE, self.encoder, self.cases)
        return collect(
            SIGNALS,
            [case.record for case in self.cases],
            {TARGET: Model(self.target, self.encoder)},
            store=store,
            shown=Shown(behind={TARGET: behind}),
            progress=progress,
        )


def values(seen: Observations) -> dict[tuple[Any, str], str]:
    return {(signal, id_): repr(seen.get(signal, id_)) for signal in SIGNALS for id_ in seen.ids}


@pytest.mark.parametrize("room", [0, 100, 1000, 10**6])
def test_however_much_it_remembers_the_answers_are_the_same(folder: Path, room: int) -> None:
    with Store() as store:
        anew, cost_anew = Trial(folder, None).measured(store)
    told: list[tuple[str, int, int]] = []
    trial = Trial(folder, room)
    with Store() as store:
        seen, cost = trial.measured(store, lambda *now: told.append(now))
    assert values(seen) == values(anew)
    assert (cost.requests, cost.scored) == (cost_anew.requests, cost_anew.scored)
    if room >= 1000:  # 8 trials are about 1,500 tokens; a part of them is remembered at a time
        assert 2 * cost.tokens[TARGET] < cost_anew.tokens[TARGET]
    of_texts = [(done, total) for what, done, total in told if what.startswith("writing")]
    assert all(done <= total for done, total in of_texts)
    assert [done for done, _ in of_texts] == sorted(done for done, _ in of_texts)


def test_a_stopped_run_goes_on_with_what_is_left(folder: Path, tmp_path: Path) -> None:
    class Stopped(Exception):  # noqa: N818
        pass

    def stop(_what: str, done: int, _total: int) -> None:
        if done > 40:
            raise Stopped

    with Store() as store:
        whole, cost = Trial(folder, 1000).measured(store)
    with Store(tmp_path / "answers.sqlite") as store, pytest.raises(Stopped):
        Trial(folder, 1000).measured(store, stop)
    with Store(tmp_path / "answers.sqlite") as store:
        seen, later = Trial(folder, 1000).measured(store)
    assert values(seen) == values(whole)
    assert 0 < later.scored[TARGET] <= cost.scored[TARGET] - 40
