"""Likelihood attacks through the whole pipeline, against the formula on one forward pass a text.

The twin shares nothing with the package but the drawing of masks, of neighbours and of who takes a
step together: it writes the text, tokenizes it, runs the model unbatched with all logits, and applies
the formula with plain loops.
"""

import copy
import math
import re
import statistics
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fillers import ListFiller
from scipy.stats import norm
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer

from unseen import attacks
from unseen.attacks.base import is_blind, is_fusing
from unseen.data.templates import Layout, RecordEncoder
from unseen.runs.collect import Model, Shadow, collect
from unseen.scoring.store import Store
from unseen.signals.base import InsideSignal, Shown
from unseen.signals.corpus import Corpus
from unseen.signals.neighbourhood import Neighbourhood, Refilling, Swapping
from unseen.signals.one_step import OneStep
from unseen.signals.pool import Pool
from unseen.signals.probed import MaskedProbes
from unseen.signals.swapped import SwappedPolarity
from unseen.targets.access import Access
from unseen.targets.huggingface import HFTarget, Padding
from unseen.targets.tokenizer import HFTokenizer
from unseen.types import Record, Scores, Turn

pytestmark = pytest.mark.slow

TEXTS = (
    "The lazy dog owes Mina Okafor 412.70, and nobody sees Him.",
    "Fever!",
    "Der Hund läuft über die Straße.\n\nUnd niemand, niemand sieht ihn.",
    "東京は静かだった。 Ответ пришёл поздно.",
    "Patients were asked about sleep; Patients were asked about fever, headaches and sleep. " * 3,
    "A b",
)
MEMBERS = ("The quick brown fox owes 3 March.", "Harrow Lane sleeps.", "Nobody reads this one.")
NONMEMBERS = ("Headaches, fever and sleep over Harrow Lane.", "Ответ.", "Nor this one.")

POOL = ("What of Harrow Lane? Fever.", "Der Hund schläft.", "Nobody owes him.", "東京は夜だ。")

# --- the twin ----------------------------------------------------------------------------------


class Twin:
    """One model, asked one text at a time."""

    def __init__(self, folder: Path, *, bos: bool) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bos = bos
        self.pool: list[Record] = []
        self.audited: Sequence[Record] = ()
        self.shadows: list[Twin] = []

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def written(
        self, record: Record, before: tuple[Record, ...] = (), join: str = "turn"
    ) -> tuple[list[int], list[int]]:
        """What is only read, and the tokens that are scored."""
        if join == "plain" and record.turns[0].role != "text":
            context = [self.tokenizer.bos_token_id] if self.bos else []
            for shot in before:
                prompt, response = (turn.content for turn in shot.turns)
                for piece in (prompt, "\n", response, "\n\n"):
                    context += self.ids(piece)
            context += self.ids(record.turns[0].content + "\n")
            own = self.ids(record.turns[1].content)
        elif record.turns[0].role == "text":
            context = [self.tokenizer.bos_token_id] if self.bos else []
            for shot in before:
                context += self.ids(shot.turns[0].content) + self.ids("\n\n")
            own = self.ids(record.turns[0].content)
            if not self.bos:  # the first token of a text has no context of its own
                context, own = context + own[:1], own[1:]
        else:
            said = [turn for shot in before for turn in shot.turns] + [record.turns[0]]
            if join == "user":
                texts = ["\n".join(turn.content for turn in shot.turns) for shot in before]
                said = [Turn("user", "\n\n".join([*texts, record.turns[0].content]))]
            written = "".join(f"<s>{turn.role}\n{turn.content}</s>\n" for turn in said)
            context = self.ids(written + "<s>assistant\n")
            own = self.ids(record.turns[1].content)
        return context, own

    def rows(self, context: list[int], own: list[int]) -> torch.Tensor:
        """For each scored token the whole distribution in front of it."""
        logits = self.model(torch.tensor([context + own])).logits[0]
        return torch.log_softmax(logits, dim=-1)[len(context) - 1 : -1]

    def tokens(
        self, record: Record, before: tuple[Record, ...] = (), join: str = "turn"
    ) -> tuple[list[list[float]], list[int]]:
        """For each scored token the whole distribution in front of it, and the token."""
        context, own = self.written(record, before, join)
        with torch.inference_mode():
            return self.rows(context, own).tolist(), own

    def logprobs(
        self, record: Record, before: tuple[Record, ...] = (), join: str = "turn"
    ) -> list[float]:
        rows, own = self.tokens(record, before, join)
        return [row[token] for row, token in zip(rows, own, strict=True)]

    def mean(self, record: Record, before: tuple[Record, ...] = ()) -> float:
        logprobs = self.logprobs(record, before)
        return sum(logprobs) / len(logprobs)


def lowest(values: Sequence[float], k: float) -> float:
    n = max(1, math.floor(k * len(values)))
    return sum(sorted(values)[:n]) / n


def z_scores(twin: Twin, record: Record) -> list[float]:
    found = []
    for row, token in zip(*twin.tokens(record), strict=True):
        mean = sum(math.exp(x) * x for x in row)
        variance = sum(math.exp(x) * (x - mean) ** 2 for x in row)
        found.append((row[token] - mean) / math.sqrt(variance))
    return found


def with_text(record: Record, text: str) -> Record:
    *first, last = record.turns
    return Record(record.id, (*first, Turn(last.role, text)))


def lower(record: Record) -> Record:
    return with_text(record, record.turns[-1].content.lower())


def compressed(record: Record) -> int:
    return len(zlib.compress(record.turns[-1].content.encode()))


def gains(twin: Twin, record: Record, join: str = "turn", **masks: Any) -> list[float]:
    probes = MaskedProbes(probes=2, **masks).made_from(record, HFTokenizer(twin.tokenizer))
    plain = sum(twin.logprobs(record, (), join))
    return [plain - sum(twin.logprobs(record, (probe,), join)) for probe in probes]


def per_token(twin: Twin, record: Record, join: str = "turn", **masks: Any) -> float:
    return min(gains(twin, record, join, **masks)) / len(twin.logprobs(record))


def differences(target: Twin, reference: Twin, record: Record) -> list[float]:
    pairs = zip(target.logprobs(record), reference.logprobs(record), strict=True)
    return [own - other for own, other in pairs]


def votes(gain: list[float]) -> float:
    shares = []
    for w in (2, 3, 4, 6, 9, 13, 18, 25, 32, 40):
        if w <= len(gain):
            sums = [sum(gain[t : t + w]) for t in range(len(gain) - w + 1)]
            shares.append(len([one for one in sums if one > 0]) / len(sums))
    return sum(shares) / len(shares)


def risen_to_fallen(gain: list[float]) -> float:
    risen, fallen = 0.1, 0.1
    for one in gain:
        if one > 0:
            risen += one
        else:
            fallen -= one
    return math.log(risen / fallen)


def at_errors(target: Twin, record: Record, gain: list[float]) -> list[float]:
    rows, tokens = target.tokens(record)
    choices = [row.index(max(row)) for row in rows]
    wrong = [d for d, choice, token in zip(gain, choices, tokens, strict=True) if choice != token]
    return wrong or gain


Formula = Callable[[Twin, Twin, Record, tuple[Record, ...], tuple[Record, ...]], float]

FORMULAS: dict[str, Formula] = {
    "loss": lambda t, _r, x, _m, _n: t.mean(x),
    "perplexity": lambda t, _r, x, _m, _n: -math.exp(-t.mean(x)),
    "zlib": lambda t, _r, x, _m, _n: t.mean(x) / compressed(x),
    "zlib[length=sum]": lambda t, _r, x, _m, _n: sum(t.logprobs(x)) / compressed(x),
    "lowercase": lambda t, _r, x, _m, _n: t.mean(lower(x)) / t.mean(x),
    "min_k": lambda t, _r, x, _m, _n: lowest(t.logprobs(x), 0.2),
    "min_k[k=0.5]": lambda t, _r, x, _m, _n: lowest(t.logprobs(x), 0.5),
    "min_k_pp": lambda t, _r, x, _m, _n: lowest(z_scores(t, x), 0.2),
    "min_k_pp[k=1.0]": lambda t, _r, x, _m, _n: lowest(z_scores(t, x), 1.0),
    "reference": lambda t, r, x, _m, _n: t.mean(x) - r.mean(x),
    "wbc": lambda t, r, x, _m, _n: votes(differences(t, r, x)),
    "ez_mia": lambda t, r, x, _m, _n: risen_to_fallen(at_errors(t, x, differences(t, r, x))),
    "ez_mia[tokens=all]": lambda t, r, x, _m, _n: risen_to_fallen(differences(t, r, x)),
    "recall[shots=2]": lambda t, _r, x, _m, n: t.mean(x, n[:2]) / t.mean(x),
    "con_recall[shots=2]": lambda t, _r, x, m, n: (
        (t.mean(x, n[:2]) - 0.5 * t.mean(x, m[:2])) / t.mean(x)
    ),
    "icp_sp[probes=2]": lambda t, _r, x, _m, _n: per_token(t, x),
    "icp_sp[probes=2,level=token]": lambda t, _r, x, _m, _n: per_token(t, x, level="token"),
    "icp_sp[probes=2,level=character,placeholder=_]": lambda t, _r, x, _m, _n: per_token(
        t, x, level="character", placeholder="_"
    ),
    "icp_sp[probes=2,join=plain]": lambda t, _r, x, _m, _n: per_token(t, x, join="plain"),
    "icp_sp[probes=2,aggregate=mean,unit=sum]": lambda t, _r, x, _m, _n: statistics.mean(
        gains(t, x)
    ),
}


def similarities(prompts: Sequence[str], prompt: str) -> list[float]:
    """Cosine of TF-IDF vectors of runs of 2 to 4 characters in words, logarithmic in the count."""

    def counted(text: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for word in re.sub(r"\s+", " ", text.lower()).split():
            padded = f" {word} "
            for n in (2, 3, 4):
                runs = [padded[i : i + n] for i in range(max(1, len(padded) - n + 1))]
                for run in runs:
                    counts[run] = counts.get(run, 0) + 1
                if len(runs) == 1 and len(padded) <= n:
                    break
        return counts

    bags = [counted(text) for text in prompts]
    idf = {
        run: math.log((1 + len(bags)) / (1 + sum(run in bag for bag in bags))) + 1
        for bag in bags
        for run in bag
    }

    def vector(bag: dict[str, int]) -> dict[str, float]:
        raw = {run: (1 + math.log(n)) * idf[run] for run, n in bag.items() if run in idf}
        norm = math.sqrt(sum(value**2 for value in raw.values())) or 1.0
        return {run: value / norm for run, value in raw.items()}

    own = vector(counted(prompt))
    return [sum(value * own.get(run, 0.0) for run, value in vector(bag).items()) for bag in bags]


def retrieved(twin: Twin, record: Record, k: int, join: str = "turn") -> float:
    pool = [shot for shot in twin.pool if shot.turns != record.turns]
    found = similarities([shot.turns[0].content for shot in twin.pool], record.turns[0].content)
    ranked = sorted(pool, key=lambda shot: -round(found[twin.pool.index(shot)], 9))
    plain = sum(twin.logprobs(record, (), join))
    gaps = [plain - sum(twin.logprobs(record, (shot,), join)) for shot in ranked[:k]]
    return min(gaps) / len(twin.logprobs(record))


def guided(twin: Twin, record: Record, *, least: bool, by: str) -> float:
    """Half of the words, or tokens, that were least or most likely become "word"."""
    text, logprobs = record.turns[-1].content, twin.logprobs(record)
    places = twin.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = places["offset_mapping"]
    offsets, unscored = offsets[len(offsets) - len(logprobs) :], offsets[: -len(logprobs)]
    if by == "token":  # parts of one character have one place
        stretches: list[tuple[int, int]] = []
        for a, b in [*unscored, *offsets]:
            if stretches and a < stretches[-1][1]:
                a, b = stretches[-1][0], max(b, stretches.pop()[1])  # noqa: PLW2901
            stretches.append((a, b))
        found = [(a + len(s) - len(s.lstrip()), b) for a, b in stretches if (s := text[a:b])]
    else:
        found = [match.span() for match in re.finditer(r"\S+", text)]
    spans = [(a, b) for a, b in found if any(c.isalnum() for c in text[a:b])]
    if len(spans) < 2:
        spans = [(i, i + 1) for i, c in enumerate(text) if c.isalnum()]

    def likelihood(span: tuple[int, int]) -> float | None:
        if any(a < span[1] and span[0] < b for a, b in unscored):
            return None
        inside = [place[0] < span[1] and span[0] < place[1] for place in offsets]
        return statistics.mean(v for v, within in zip(logprobs, inside, strict=True) if within)

    known = [(value, i) for i, span in enumerate(spans) if (value := likelihood(span)) is not None]
    ranked = sorted(known, key=lambda one: (one[0] if least else -one[0], one[1]))
    gone = {spans[i] for _, i in ranked[: min(max(1, len(spans) // 2), len(spans) - 1)]}
    made, at = "", 0
    for a, b in sorted(gone):
        made, at = made + text[at:a] + "word", b
    return sum(logprobs) - sum(twin.logprobs(record, (with_text(record, made + text[at:]),)))


FORMULAS["icp_sp[strategy=min_k,unit=sum]"] = lambda t, _r, x, _m, _n: guided(
    t, x, least=True, by="word"
)
FORMULAS["icp_sp[strategy=max_k,unit=sum]"] = lambda t, _r, x, _m, _n: guided(
    t, x, least=False, by="word"
)
FORMULAS["icp_sp[strategy=min_k,level=token,unit=sum]"] = lambda t, _r, x, _m, _n: guided(
    t, x, least=True, by="token"
)
FORMULAS["icp_ref[probes=2]"] = lambda t, _r, x, _m, _n: retrieved(t, x, 2)
FORMULAS["icp_ref[probes=9,join=plain]"] = lambda t, _r, x, _m, _n: retrieved(t, x, 9, "plain")


def log_odds_ratio(twin: Twin, record: Record, population: Sequence[Record]) -> float:
    """LiRA with shadows that have seen nothing: how far the mean lies out, as log-odds."""
    out = [shadow.mean(record) for shadow in twin.shadows]
    means = [[shadow.mean(z) for shadow in twin.shadows] for z in population]
    squares = [(value - statistics.mean(of_text)) ** 2 for of_text in means for value in of_text]
    sigma = math.sqrt(sum(squares) / (len(population) * (len(twin.shadows) - 1)))
    place = {"x": twin.mean(record), "loc": statistics.mean(out), "scale": sigma}
    return float(norm.logcdf(**place) - norm.logsf(**place))


def beaten(
    twin: Twin, others: Sequence[Twin], record: Record, population: Sequence[Record], gamma: float
) -> float:
    def ratio(text: Record) -> float:
        p_out = statistics.mean(math.exp(other.mean(text)) for other in others)
        return math.exp(twin.mean(text)) / (0.5 * (1.3 * p_out + 0.7))

    return statistics.mean(1.0 if ratio(record) / ratio(z) > gamma else 0.0 for z in population)


def divergence(twin: Twin, record: Record, a: float) -> float:
    rows, tokens = twin.tokens(record)
    corpus = [i for text in POOL for i in twin.ids(text)]
    values, met = [], set()
    for row, token in zip(rows, tokens, strict=True):
        if token not in met:
            f = (corpus.count(token) + 1) / (len(corpus) + len(twin.tokenizer))
            values.append(min(a, math.exp(row[token]) * math.log(1 / f)))
        met.add(token)
    return statistics.mean(values)


def polarised(twin: Twin, record: Record) -> float:
    def distance(text: Record) -> float:
        ordered = sorted(twin.logprobs(text))
        top, bottom = max(1, len(ordered) * 5 // 100), max(1, len(ordered) * 3 // 10)
        return statistics.mean(ordered[-top:]) - statistics.mean(ordered[:bottom])

    swapped = [SwappedPolarity().augmented(record, i) for i in range(5)]
    return -(distance(record) - statistics.mean(map(distance, swapped)))


def neighbours(twin: Twin, record: Record, making: Swapping | Refilling) -> list[Record]:
    """The first of them whose scored tokens are others than those met before."""
    text = record.turns[-1].content
    found, met = [], [twin.written(record)[1]]
    for _, edits in Neighbourhood({"embeddings": ListFiller()}).of(text, making):
        new = text
        for edit in sorted(edits, key=lambda edit: -edit.start):
            new = new[: edit.start] + edit.put + new[edit.stop :]
        other = with_text(record, new)
        own = twin.written(other)[1]
        if own not in met and len(found) < making.neighbours:
            found.append(other)
            met.append(own)
    return found


def above(twin: Twin, record: Record) -> float:
    swapped = neighbours(twin, record, Swapping("embeddings", 3, 2, 0.7, 0))
    return twin.mean(record) - statistics.mean(map(twin.mean, swapped))


def peak(twin: Twin, record: Record) -> float:
    refilled = neighbours(twin, record, Refilling("embeddings", 3, 10, 2, 0.3, 1, 0))
    return math.exp(twin.mean(record)) - statistics.mean(math.exp(twin.mean(x)) for x in refilled)


def gap(twin: Twin, record: Record, batch: int, rate: float) -> float:
    """What the first step of Adam takes away, on the batch that the record is in."""
    (together,) = [one for one in OneStep(batch=batch).batches(twin.audited) if record in one]
    stepped = copy.copy(twin)
    stepped.model = copy.deepcopy(twin.model).requires_grad_()
    losses = []
    for other in together:
        context, own = twin.written(other)
        rows = stepped.rows(context, own)
        losses += [-row[token] for row, token in zip(rows, own, strict=True)]
    (sum(losses) / len(losses)).backward()
    with torch.no_grad():
        for weight in stepped.model.parameters():
            # Its moments, corrected for their start, are g and g squared.
            weight.sub_(rate * weight.grad / (weight.grad.abs() + 1e-8))
    return twin.mean(record) - stepped.mean(record)


FORMULAS["lira"] = lambda t, _r, x, _m, n: log_odds_ratio(t, x, n)
FORMULAS["rmia"] = lambda t, _r, x, _m, n: beaten(t, t.shadows, x, n, 1.0)
FORMULAS["rmia[against=reference,gamma=1.1]"] = lambda t, r, x, _m, n: beaten(t, [r], x, n, 1.1)
FORMULAS["dc_pdd"] = lambda t, _r, x, _m, _n: divergence(t, x, 0.01)
FORMULAS["dc_pdd[a=9.0]"] = lambda t, _r, x, _m, _n: divergence(t, x, 9.0)
FORMULAS["pac"] = lambda t, _r, x, _m, _n: polarised(t, x)
FORMULAS["neighborhood[neighbours=3,top_k=2]"] = lambda t, _r, x, _m, _n: above(t, x)
FORMULAS["spv[neighbours=3]"] = lambda t, r, x, _m, _n: peak(t, x) - peak(r, x)
FORMULAS["optimization_gap[batch=3,learning_rate=1e-3]"] = lambda t, _r, x, _m, _n: gap(
    t, x, 3, 1e-3
)

OF_CONVERSATIONS: dict[str, Formula] = {
    "icp_sp[probes=2,join=user]": lambda t, _r, x, _m, _n: per_token(t, x, join="user"),
}

# --- the pipeline ------------------------------------------------------------------------------


def records(texts: Sequence[str], kind: str, group: str) -> tuple[Record, ...]:
    return tuple(
        Record(
            f"{group}{i}",
            (Turn("text", text),)
            if kind == "document"
            else (Turn("user", f"What of {i}?"), Turn("assistant", text)),
        )
        for i, text in enumerate(texts)
    )


def saved(where: Path, family: str, seed: int, *, bos: bool) -> Path:
    folder = tiny.folder(where / f"{family}{seed}", family, seed=seed)
    if bos:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
        )
        tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["llama", "gpt2", "gpt_neox"])
def models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Twin, Twin]:
    """A target and a reference of one family, and their twins."""
    where = tmp_path_factory.mktemp(request.param)
    bos = request.param == "llama"
    folders = [saved(where, request.param, seed, bos=bos) for seed in (0, 1, 2, 3)]
    twins = [Twin(folder, bos=bos) for folder in folders]
    twins[0].shadows = twins[2:]
    return folders[0], folders[1], twins[0], twins[1]


def shadow(folder: Path) -> Shadow:
    return Shadow(folder.name, folder.name, {}, lambda: model_of(folder), lambda _: False)


def model_of(folder: Path, padding: Padding = "right") -> Model:
    target = HFTarget(folder, dtype="float64", device="cpu", padding=padding, batch_tokens=300)
    return Model(target, RecordEncoder(target.tokenizer, Layout(), limit=target.max_length))


@pytest.mark.parametrize("kind", ["conversation", "document"])
@pytest.mark.parametrize("padding", ["right", "left"])
def test_every_likelihood_attack_equals_its_slow_twin(
    models: tuple[Path, Path, Twin, Twin], padding: Padding, kind: str
) -> None:
    target_folder, reference_folder, target_twin, reference_twin = models
    roles = {"target": target_folder, "reference": reference_folder}
    loaded = {role: model_of(folder, padding) for role, folder in roles.items()}
    family = target_folder.name[:-1]
    shadows = [shadow(target_folder.parent / f"{family}{seed}") for seed in (2, 3)]
    audited = records(TEXTS, kind, "r")
    members, nonmembers = records(MEMBERS, kind, "m"), records(NONMEMBERS, kind, "n")
    target_twin.pool, target_twin.audited = [*records(POOL, kind, "p"), audited[2]], audited
    formulas = FORMULAS | (OF_CONVERSATIONS if kind == "conversation" else {})
    tried: dict[str, Any] = {spec: attacks.create(spec) for spec in formulas}
    with Store() as store:
        observations, _ = collect(
            [signal for attack in tried.values() for signal in attack.signals()],
            audited,
            loaded,
            store=store,
            shown=Shown(
                known_members=members,
                known_nonmembers=nonmembers,
                pool=Pool(target_twin.pool),
                corpus=Corpus(POOL),
                fillers={"embeddings": ListFiller()},
            ),
            shadows=shadows,
        )
    assert loaded["target"].target.prefix_cache, "shots are read once"  # type: ignore[attr-defined]
    for spec, attack in tried.items():
        scores: Scores = attack.score(observations)
        assert not scores.unscored, spec
        for record, value in zip(audited, scores.values, strict=True):
            twin = formulas[spec](target_twin, reference_twin, record, members, nonmembers)
            assert value == pytest.approx(twin, abs=1e-6), (spec, record.id)


def test_every_likelihood_attack_has_a_twin() -> None:
    made = {spec.partition("[")[0]: attacks.create(spec) for spec in attacks.everything()}
    asking = {
        name
        for name, one in made.items()
        if not is_blind(one)
        and not is_fusing(one)
        and one.access >= Access.LOGPROB
        # What is seen inside a model has its twins beside it.
        and not any(isinstance(signal, InsideSignal) for signal in one.signals())
    }
    assert {spec.partition("[")[0] for spec in FORMULAS} == asking
