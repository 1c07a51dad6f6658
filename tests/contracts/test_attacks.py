"""What every attack promises, whoever wrote it: this file walks the folder and names no attack."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fillers import ListFiller
from remembering import record, remembering
from scripted import Scripted, copying, played, pool

from unseen import attacks
from unseen.attacks.base import (
    FINETUNE,
    PROMPT,
    Attack,
    Known,
    is_blind,
    is_fitted,
    is_fusing,
)
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.prompts.trials import Game
from unseen.runs.collect import Model, Shadow, collect
from unseen.runs.fused import gathered, sources
from unseen.runs.lent import Lent, LentFusion
from unseen.scoring.store import Store
from unseen.signals.base import (
    TARGET,
    ContinuationSignal,
    InsideSignal,
    LikelihoodSignal,
    Materials,
    Observations,
    ObservingSignal,
    PopulationSignal,
    ReadingSignal,
    ScoreSignal,
    Shown,
    Signal,
    TextSignal,
    access_needed,
    key,
    paraphrases_needed,
)
from unseen.signals.corpus import Corpus
from unseen.signals.pool import Pool
from unseen.signals.scores import AttackScores, LentOdds, learned
from unseen.targets.access import Access, InsideTarget
from unseen.targets.fake import FakeTarget
from unseen.types import BoolArray, FloatArray, Record, Scores, TokenStats, Turn

INSIDE = [
    spec
    for spec in attacks.everything()
    if any(isinstance(signal, InsideSignal) for signal in attacks.create(spec).signals())
]
"""They look inside a model, which has to be a real one."""
TUNED = attacks.everything()
PROMPTED = [spec for spec in attacks.everything(PROMPT) if spec not in TUNED]
"""They ask a model behind a hidden prompt; the others, one that was fine-tuned."""
SPECS = [*TUNED, *PROMPTED]
SHAPES = (
    TextSignal,
    ObservingSignal,
    ReadingSignal,
    ContinuationSignal,
    InsideSignal,
    PopulationSignal,
    ScoreSignal,
)
BLIND = [spec for spec in SPECS if is_blind(attacks.create(spec))]
FUSING = [spec for spec in SPECS if is_fusing(attacks.create(spec))]
ASKING = [spec for spec in SPECS if spec not in (*BLIND, *FUSING)]
OUTSIDE = [spec for spec in ASKING if spec not in INSIDE]
PARAPHRASED = [spec for spec in INSIDE if paraphrases_needed(attacks.create(spec).signals())]
"""Which side stays the same in other words is not to be had from a tiny model: their own tests say."""
DISTANT = [spec for spec in OUTSIDE if spec in TUNED]
BELOW = [spec for spec in DISTANT if attacks.create(spec).access < Access.LOGPROB]
"""They see no log-probabilities: their model has the members by heart."""
FUSED = {
    FINETUNE: ("loss", "zlib", "min_k", "reference"),
    PROMPT: [spec for spec in PROMPTED if not is_fitted(attacks.create(spec))],
}
"""What an attack that learns from scores learns from here."""
N_AUDITED, N_KNOWN, N_SHOTS = 30, 50, 14
SYLLABLES = ("ba", "Ke", "lo", "Mi", "nu", "ra", "So", "ti", "Vu", "wem", "xis", "Yal")


@dataclass(frozen=True)
class World:
    """Records, who of them are members, and what is measured of them."""

    audited: Observations
    member: BoolArray
    known: Known

    def scores(self, attack: Attack) -> Scores:
        return attack.score(self.audited, self.known if is_fitted(attack) else None)


def text(rng: np.random.Generator) -> str:
    """A sentence of invented words."""
    return " ".join("".join(rng.choice(SYLLABLES, size=rng.integers(1, 4))) for _ in range(16))


def create(spec: str) -> Attack:
    """The attack; texts that are compared are so by their letters, which needs no model."""
    attack: Any = attacks.create(spec)
    if hasattr(attack, "encoder") and spec in PROMPTED:
        return dataclasses.replace(attack, encoder="letters")
    return attack


def signals_of(specs: Sequence[str]) -> list[Signal]:
    return [signal for spec in specs for signal in create(spec).signals()]


def made(*, apart: bool, alone: int | None = None) -> World:
    """A world in which the even records are members.

    Args:
        apart: members and non-members are different texts, and no model is asked; else they are
            alike, and the model has memorised the members.
        alone: the number of the one audited record that is measured.
    """
    n = N_AUDITED + N_KNOWN + N_SHOTS
    rng = np.random.default_rng(1)
    member = np.arange(n) % 2 == 0
    texts = [
        f"Now {text(rng)} {('lately!' if m else 'formerly') if apart else 'ago'}" for m in member
    ]
    turns = [(Turn("user", "Say it."), Turn("assistant", text)) for text in texts]
    records = [Record(f"r{i:03d}", turns[i]) for i in range(n)]
    shots = records[N_AUDITED + N_KNOWN :]
    judged, known = records[:N_AUDITED], records[N_AUDITED : N_AUDITED + N_KNOWN]
    if alone is not None:
        judged = [judged[alone]]
    target = FakeTarget(
        [text for text, is_member in zip(texts, member, strict=True) if is_member],
        strength=4.0,
        access=Access.WHITE_BOX,
    )
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    models = {"target": Model(target, encoder), "reference": Model(target.reference, encoder)}
    # A surrogate knows the language: it is often right, and more often where it is sure.
    models["surrogate"] = Model(FakeTarget(texts, strength=8.0), encoder)
    by_heart = FakeTarget(
        [text for text, is_member in zip(texts, member, strict=True) if is_member], strength=16.0
    )
    set_aside: dict[str, Any] = {
        "shadows": shadows(encoder, texts, 8.0),
        "shown": Shown(
            known_members=tuple(shots[0::2]),
            known_nonmembers=tuple(shots[1::2]),
            corpus=Corpus([record.response for record in shots]),
            pool=Pool(shots[1::2]),
            fillers={"embeddings": ListFiller(SYLLABLES)},
        ),
    }
    learning = [*BLIND, *([] if apart else FUSED[FINETUNE])]
    asking = [] if apart else [spec for spec in DISTANT if spec not in BELOW]
    with Store() as store:
        seen, _ = collect(signals_of(asking), judged, models, store=store, **set_aside)
        said, _ = collect(
            signals_of([] if apart else BELOW),
            judged,
            models | {"target": Model(by_heart, encoder)},
            store=store,
            **set_aside,
        )
        both, _ = collect(signals_of(learning), judged + known, models, store=store, **set_aside)
    if not apart:
        both = with_scores(both, FINETUNE)
    values = {**seen.values, **said.values, **both.values}
    missing = {**seen.missing, **said.missing, **both.missing}
    return World(
        Observations(seen.ids, values, missing),
        member[:N_AUDITED],
        Known(
            Observations(tuple(record.id for record in known), both.values, both.missing),
            member[N_AUDITED : N_AUDITED + N_KNOWN],
        ),
    )


def in_other_words(records: Sequence[Record]) -> dict[str, list[str]]:
    """Two more prompts for each record."""
    prompts = {one.id: one.turns[0].content for one in records}
    return {id_: [f"{prompt}.", f"about {prompt}"] for id_, prompt in prompts.items()}


def looked_into(model: Model, records: Sequence[Record], *, alone: int | None = None) -> World:
    """A world of a real model that remembers the even records.

    Args:
        model: the model.
        records: the judged ones first.
        alone: the number of the one audited record that is measured.
    """
    member = np.arange(len(records)) % 2 == 0
    judged, known = list(records[:N_AUDITED]), list(records[N_AUDITED:])
    said = Shown(paraphrases=in_other_words(records))
    with Store() as store:
        seen, _ = collect(
            signals_of(INSIDE), judged + known, {TARGET: model}, store=store, shown=said
        )
    audited = seen.select([one.id for one in judged])
    if alone is not None:
        with Store() as store:  # in a batch of its own
            audited, _ = collect(
                signals_of(INSIDE), [judged[alone]], {TARGET: model}, store=store, shown=said
            )
    return World(
        audited,
        member[:N_AUDITED],
        Known(seen.select([one.id for one in known]), member[N_AUDITED:]),
    )


def behind_prompts(*, paired: bool = False, empty: bool = False, alone: int | None = None) -> World:
    """A world of cases behind hidden prompts, of a model that copies from its prompt.

    Args:
        paired: whether a record is asked about behind the prompt that holds it, and behind another.
        empty: whether the prompts hold nobody.
        alone: the number of the one audited case that is measured.
    """
    game = Game(trials=(N_AUDITED + N_KNOWN) // 2, shots=2, paired=paired)
    cases = game.cases(pool(2 * game.trials))
    judged, known = cases[:N_AUDITED], cases[N_AUDITED:]
    seen, of_known = (
        played(
            signals_of([spec for spec in PROMPTED if spec in ASKING]),
            Scripted(copying),
            cases=some,
            empty=empty,
            fillers={"embeddings": ListFiller(SYLLABLES)},
        )
        for some in (judged if alone is None else judged[alone : alone + 1], known)
    )
    return World(
        with_scores(seen.observations, PROMPT),
        seen.member,
        Known(with_scores(of_known.observations, PROMPT), of_known.member),
    )


def shadows(encoder: RecordEncoder, texts: Sequence[str], strength: float = 2.0) -> list[Shadow]:
    """Three models, each of which has memorised its own tenth of the texts."""

    def shadow(i: int) -> Shadow:
        seen = set(texts[i::10])
        target = FakeTarget(sorted(seen), strength=strength)
        model = Model(target, encoder)
        return Shadow(
            f"shadow{i}", target.fingerprint, {}, lambda: model, lambda r: r.response in seen
        )

    return [shadow(i) for i in (1, 2, 3)]


def with_scores(seen: Observations, scenario: str) -> Observations:
    """The observations, and beside them what some attacks say of these records."""
    fused = [create(spec) for spec in FUSED[scenario]]
    made = {attacks.label(attack): attack.score(seen) for attack in fused}
    lends = lent(fused, made) if scenario == FINETUNE else None
    for spec in FUSING:
        if (spec in PROMPTED) == (scenario == PROMPT):
            seen = gathered(create(spec), fused, made, seen, lends)
    return seen


def lent(fused: Sequence[Attack], made: dict[str, Scores]) -> Lent:
    """What another audit has learned from the known records, of which every second is a member."""
    fusions = {}
    for spec in ("fusion", "fusion[reference=False]"):
        names = sorted(sources(attacks.create(spec), fused))
        everyone = AttackScores().gather({name: made[name] for name in names})
        said = {id_: one for id_, one in everyone.items() if int(id_[1:]) >= N_AUDITED}
        member = np.array([int(id_[1:]) % 2 == 0 for id_ in said])
        weights = learned(list(said.values()), member)
        fusions[spec] = LentFusion(attacks=tuple(names), **dataclasses.asdict(weights))
    about = {
        "tool": "unseen",
        "run": "r",
        "verdict": None,
        "n": (1, 1),
        "data": ("a", "b"),
        "sketch": "",
    }
    return Lent(**about, fusions=fusions)


@pytest.fixture(scope="module")
def fake() -> World:
    """Members and non-members are alike; the model has memorised the members."""
    return made(apart=False)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, list[Record]]:
    """A real model and records, of which it remembers the even ones."""
    rng = np.random.default_rng(1)
    records = [record(f"r{i:03d}", rng) for i in range(N_AUDITED + N_KNOWN)]
    return remembering(tmp_path_factory.mktemp("model"), records[::2]), records


@pytest.fixture(scope="module")
def inside(real: tuple[Model, list[Record]]) -> World:
    """The same of a real model."""
    return looked_into(*real)


@pytest.fixture(scope="module")
def prompts() -> World:
    """Members stand in the prompt of the model that is asked."""
    return behind_prompts()


def home(spec: str) -> str:
    """The fixture of the world that suits an attack."""
    return "inside" if spec in INSIDE else "prompts" if spec in PROMPTED else "fake"


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """The world that suits the attack."""
    found: World = request.getfixturevalue(home(request.node.callspec.params["spec"]))
    return found


@pytest.fixture(scope="module")
def apart() -> World:
    """Members and non-members are different texts; no model is asked."""
    return made(apart=True)


Scored = Callable[[str], Scores]


@pytest.fixture(scope="module")
def scored(request: pytest.FixtureRequest) -> Scored:
    """Spec of an attack -> its scores of its world, worked out once."""

    def of(spec: str) -> Scores:
        world: World = request.getfixturevalue(home(spec))
        return world.scores(create(spec))

    return cache(of)


def auc(values: FloatArray, member: BoolArray) -> float:
    wins = np.sign(values[member][:, None] - values[~member][None, :])
    return float((wins.mean() + 1) / 2)


CHANCE_SD = float(np.sqrt((N_AUDITED + 1) / (3 * N_AUDITED**2)))
"""Standard deviation of the AUC at chance, with as many members as non-members."""


# --- its shape ---------------------------------------------------------------------------------

UNDATED = {"neighbor_deviation"}
"""Attacks whose paper bears no year."""


@pytest.mark.parametrize("name", attacks.names())
def test_it_explains_itself(name: str) -> None:
    cls = attacks.find(name)
    assert re.match(r"\S[^\n]*[.?!]", inspect.getmodule(cls).__doc__ or ""), "what it is about"
    assert re.match(r"\S[^\n]*\.\n", inspect.getdoc(cls) or ""), "one line first"
    assert "score = " in (cls.__doc__ or ""), "the equation"
    assert cls.paper, "the paper"
    assert name in UNDATED or re.search(r"\b(19|20)\d\d\b", cls.paper), "and its year"
    assert isinstance(cls.access, Access)
    assert isinstance(cls(), Attack)


@pytest.mark.parametrize("spec", SPECS)
def test_it_is_a_frozen_dataclass_of_hyperparameters(spec: str) -> None:
    attack: Any = attacks.create(spec)
    fields = dataclasses.fields(attack)
    assert attack.__dataclass_params__.frozen
    assert attack == attacks.create(attacks.label(attack))
    hash(attack)
    for field in fields:
        assert isinstance(field.default, bool | int | float | str), "every field has a default"
        assert re.search(rf"^ *{field.name}: ", type(attack).__doc__, re.MULTILINE), field.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(attack, field.name, field.default)


@pytest.mark.parametrize("spec", SPECS)
def test_its_signals_say_what_is_measured(spec: str) -> None:
    attack = attacks.create(spec)
    signals = attack.signals()
    assert signals
    assert signals == attack.signals(), "equal signals are measured once"
    assert len({key(signal) for signal in signals}) == len(set(signals)) == len(signals)
    for signal in signals:
        assert sum(isinstance(signal, kind) for kind in SHAPES) == 1
    if is_fusing(attack):
        assert all(isinstance(signal, ScoreSignal) for signal in signals)
        assert is_fitted(attack) or all(isinstance(signal, LentOdds) for signal in signals)
    elif is_blind(attack):
        assert all(isinstance(signal, TextSignal) for signal in signals)
        assert attack.access == Access.TEXT
    else:
        asked = [access_needed(signal) for signal in signals if signal.of == TARGET]
        assert attack.access >= max(rung for rung in asked if rung is not None)


@pytest.mark.parametrize("name", attacks.names())
def test_it_cannot_see_labels_or_models(name: str) -> None:
    cls = attacks.find(name)
    assert list(inspect.signature(cls.score).parameters) == ["self", "audited", "known"]
    assert list(inspect.signature(cls.signals).parameters) == ["self"]
    assert [field.name for field in dataclasses.fields(Observations)] == [
        "ids",
        "values",
        "missing",
    ]
    tree = ast.parse(Path(inspect.getfile(cls)).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for path in imported:
            assert "Membership" not in path
            if path.startswith("unseen."):
                assert re.match(
                    r"unseen\.(attacks\.base|signals|targets\.(access|looks)|types|errors)\b", path
                ), path


# --- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [s for s in [*ASKING, *FUSING] if s not in PARAPHRASED])
def test_a_higher_score_is_a_member_where_the_model_remembers(
    world: World, scored: Scored, spec: str
) -> None:
    scores = scored(spec)
    assert scores.ids == world.audited.ids
    assert not scores.unscored
    assert auc(scores.values, world.member) > 0.5 + 3 * CHANCE_SD


@pytest.mark.parametrize("spec", BLIND)
def test_a_blind_attack_sees_texts_and_no_model(
    world: World, apart: World, scored: Scored, spec: str
) -> None:
    attack = create(spec)
    assert auc(apart.scores(attack).values, apart.member) > 0.5 + 3 * CHANCE_SD
    assert abs(auc(scored(spec).values, world.member) - 0.5) < 3 * CHANCE_SD


@pytest.mark.parametrize("spec", SPECS)
def test_shuffled_labels_leave_chance(world: World, apart: World, spec: str) -> None:
    attack = create(spec)
    rng = np.random.default_rng(2)
    seen = apart if is_blind(attack) else world
    aucs = []
    for _ in range(4):
        shuffled = Known(seen.known.observations, rng.permutation(seen.known.member))
        scores = dataclasses.replace(seen, known=shuffled).scores(attack)
        aucs.append(auc(scores.values, rng.permutation(seen.member)))
    assert abs(np.mean(aucs) - 0.5) < 3 * CHANCE_SD / np.sqrt(len(aucs))


@pytest.mark.parametrize("spec", SPECS)
def test_order_does_not_matter(world: World, scored: Scored, spec: str) -> None:
    attack = create(spec)
    scores = scored(spec)
    known = world.known
    turned = World(
        world.audited.select(world.audited.ids[::-1]),
        world.member[::-1],
        Known(known.observations.select(known.observations.ids[::-1]), known.member[::-1]),
    ).scores(attack)
    assert turned.ids == scores.ids[::-1]
    assert turned.values.tolist() == scores.values[::-1].tolist()
    assert world.scores(attack).values.tolist() == scores.values.tolist(), "nothing was changed"


@pytest.mark.parametrize("spec", SPECS)
def test_a_record_scores_alone_as_in_company(world: World, scored: Scored, spec: str) -> None:
    attack = create(spec)
    scores = scored(spec)
    for i in (0, 7):
        alone = dataclasses.replace(world, audited=world.audited.select(scores.ids[i : i + 1]))
        assert alone.scores(attack).values.tolist() == [scores.values[i]]


@pytest.fixture(scope="module")
def third_alone_fake() -> World:
    return made(apart=False, alone=2)


@pytest.fixture(scope="module")
def third_alone_prompts() -> World:
    return behind_prompts(alone=2)


@pytest.fixture(scope="module")
def third_alone_inside(real: tuple[Model, list[Record]]) -> World:
    return looked_into(*real, alone=2)


@pytest.mark.parametrize("spec", SPECS)
def test_a_record_measured_alone_scores_as_in_company(
    request: pytest.FixtureRequest, scored: Scored, spec: str
) -> None:
    attack = create(spec)
    scores = scored(spec)
    third: World = request.getfixturevalue(f"third_alone_{home(spec)}")
    alone = third.scores(attack)
    assert alone.ids == (scores.ids[2],)
    if not getattr(attack, "in_company", False):
        # Of a real model, products of matrices are added up in an order that follows their shapes.
        assert alone.values == pytest.approx(
            scores.values[2:3], rel=1e-7 if spec in INSIDE else 1e-12
        )


# --- what it leaves out ------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
def test_what_was_not_measured_has_its_reason(world: World, spec: str) -> None:
    attack = create(spec)
    first, second = world.audited.ids[:2]
    for gone in attack.signals():
        values = {
            signal: {id_: value for id_, value in by_id.items() if (signal, id_) != (gone, first)}
            for signal, by_id in world.audited.values.items()
        }
        seen = Observations((first, second), values, {gone: {first: "because"}})
        scores = dataclasses.replace(world, audited=seen).scores(attack)
        assert (scores.ids, scores.unscored) == ((second,), {first: "because"})
    nothing = dataclasses.replace(world, audited=Observations((first,), {})).scores(attack)
    assert nothing.unscored == {first: "this signal was not measured"}
    nobody = dataclasses.replace(world, audited=world.audited.select([])).scores(attack)
    assert (nobody.ids, nobody.values.shape, nobody.unscored) == ((), (0,), {})


def spoiled(value: Any, bad: float, *, wholly: bool) -> Any:
    """The value with the measured numbers, or the last of each, replaced; counts stay."""

    def replaced(part: Any) -> Any:
        if isinstance(part, np.ndarray) and part.dtype.kind == "f":
            part = part.copy()
            part[0 if wholly else -1 :] = bad
            return part
        return bad if (wholly or not arrays) and isinstance(part, float) else part

    arrays = any(isinstance(part, np.ndarray) for part in vars(value).values())
    fields = [field.name for field in dataclasses.fields(value)]
    return dataclasses.replace(value, **{name: replaced(getattr(value, name)) for name in fields})


def measures(value: Any) -> bool:
    """Whether it holds measured numbers, and not counts alone."""
    return any(np.asarray(part).dtype.kind == "f" for part in vars(value).values())


@pytest.mark.parametrize(("bad", "wholly"), [(-np.inf, True), (np.nan, True), (np.nan, False)])
@pytest.mark.parametrize("spec", OUTSIDE)
def test_what_is_not_finite_has_a_reason_and_no_number(
    world: World, spec: str, bad: float, *, wholly: bool
) -> None:
    attack = create(spec)
    first, second = world.audited.ids[:2]
    shapes = (LikelihoodSignal, ContinuationSignal)
    asked = [signal for signal in attack.signals() if isinstance(signal, shapes)]
    for among in (asked, *([signal] for signal in asked)):
        if not any(measures(world.audited.values[signal][first]) for signal in among):
            continue
        values = {signal: dict(by_id) for signal, by_id in world.audited.values.items()}
        for signal in among:
            values[signal][first] = spoiled(values[signal][first], bad, wholly=wholly)
        seen = Observations((first, second), values)
        scores = dataclasses.replace(world, audited=seen).scores(attack)
        assert scores.ids == (second,)
        assert list(scores.unscored) == [first]
        assert scores.unscored[first]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("spec", INSIDE)
def test_what_is_seen_and_not_finite_has_a_reason_and_no_number(
    real: tuple[Model, list[Record]], spec: str, bad: float
) -> None:
    model, records = real
    materials = Materials(model.encoder, paraphrases=in_other_words(records))
    target = model.target
    assert isinstance(target, InsideTarget)
    for signal in create(spec).signals():
        assert isinstance(signal, InsideSignal)
        passages = signal.passages(records[0], materials)
        (seen,) = target.look([signal.look(materials)], passages)
        assert isinstance(signal.see(seen), signal.gives)
        for name, values in seen[0].items():
            spoilt = np.array(values, dtype=np.float64)
            spoilt[(-1,) * spoilt.ndim] = bad
            if np.asarray(values).dtype.kind == "f":
                with pytest.raises(UnscorableError):
                    signal.see([{**seen[0], name: spoilt}, *seen[1:]])


@pytest.mark.parametrize("spec", ASKING)
def test_it_needs_the_access_that_it_names(world: World, scored: Scored, spec: str) -> None:
    attack = create(spec)
    values = {
        signal: {
            id_: TokenStats(value.logprob) if isinstance(value, TokenStats) else value
            for id_, value in by_id.items()
        }
        for signal, by_id in world.audited.values.items()
    }
    seen = Observations(world.audited.ids, values, world.audited.missing)
    scores = dataclasses.replace(world, audited=seen).scores(attack)
    if attack.access != Access.LOGIT:
        assert scores.values.tolist() == scored(spec).values.tolist()
    else:
        assert scores.ids == ()
        assert set(scores.unscored) == set(world.audited.ids)


@pytest.mark.parametrize(
    "spec", [s for s in DISTANT if {x.of for x in attacks.create(s).signals()} - {TARGET}]
)
def test_it_compares_what_two_models_say_of_the_same_text_only(spec: str) -> None:
    attack = create(spec)
    target = FakeTarget()
    models = {
        role: Model(target, RecordEncoder(target.tokenizer, Layout(), limit=limit))
        for role, limit in (("target", 40), ("reference", 30), ("surrogate", 30))
    }
    texts = {"short": "Now Ba Ke.", "longer": "Now Ba Ke lo Mi nu ra So ti Vu"}
    records = [Record(id_, (Turn("text", text),)) for id_, text in texts.items()]
    others: dict[str, Any] = {
        "shadows": shadows(models["reference"].encoder, list("abcdefg")),
        "shown": Shown(
            known_nonmembers=tuple(Record(f"z{n}", (Turn("text", f"Lo {n}"),)) for n in range(3)),
            fillers={"embeddings": ListFiller()},
        ),
    }
    with Store() as store:
        seen, _ = collect(attack.signals(), records, models, store=store, **others)
    scores = attack.score(seen)
    assert scores.ids == ("short",)
    assert scores.unscored == {"longer": "the two models read different parts of this record"}


@pytest.mark.parametrize("spec", [spec for spec in SPECS if is_fitted(create(spec))])
def test_a_fitted_attack_needs_known_records_of_both_kinds(world: World, spec: str) -> None:
    attack = create(spec)
    known = world.known.observations
    for given in (
        None,
        Known(known.select([]), np.array([], dtype=bool)),
        Known(known, np.ones(len(known.ids), dtype=bool)),
        Known(known, np.zeros(len(known.ids), dtype=bool)),
    ):
        scores = attack.score(world.audited, given)
        assert scores.ids == ()
        assert set(scores.unscored) == set(world.audited.ids)
        assert all(scores.unscored.values())


# --- attacks on prompts ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nobody() -> World:
    """Each record is asked about twice, behind prompts that hold nobody."""
    return behind_prompts(paired=True, empty=True)


@pytest.mark.parametrize("spec", PROMPTED)
def test_an_empty_prompt_gives_nobody_away(nobody: World, spec: str) -> None:
    scores = nobody.scores(create(spec))
    assert scores.ids == nobody.audited.ids
    assert auc(scores.values, nobody.member) == 0.5
