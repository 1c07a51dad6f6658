"""Canaries: made before a training, audited after it. Their coins make epsilon a bound.

An audit of canaries is an audit of a fine-tuned model in which a fair coin has decided who is a
member. That is what it adds: an exact rank test, and a lower bound on epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unseen.attacks import create, label
from unseen.attacks.base import Attack, is_blind, is_fitted
from unseen.data import canaries
from unseen.data.canaries import CanaryKey
from unseen.errors import ConfigError, UnknownNameError, UsageError
from unseen.metrics import one_run
from unseen.metrics.interval import clopper_pearson
from unseen.runs.audit import audit
from unseen.runs.config import AUTO, CanaryAudit, made_of
from unseen.runs.ending import Report
from unseen.runs.folder import RunFolder
from unseen.runs.header import Note
from unseen.runs.plan import changed
from unseen.runs.results import Check, Epsilon, Results
from unseen.runs.subjects import Subjects
from unseen.signals.base import known_needed

if TYPE_CHECKING:
    from unseen.runs.collect import Progress
    from unseen.targets.access import LogprobTarget
    from unseen.types import Scores

METHOD = "one-run bound, Steinke, Nasr & Jagielski 2023 (arXiv:2305.08846, section 5)"
_LOOKS, _RANKS = 20, 21  # streams of the seed; the audit itself uses the lower ones
_OF_FILES = (
    "run_of",
    "members",
    "nonmembers",
    "nonmember_kind",
    "nonmembers_apart",
    "data",
    "label_column",
    "format",
    "column",
    "id_column",
    "cluster_by",
    "slice_by",
    "limit",
    "near_duplicates",
)

LIMITATIONS = (
    "Epsilon is a lower bound for adding or removing one canary that stands once in the training "
    "data, for however many epochs; where each stands there several times, it holds for all its "
    "copies together. The true epsilon may be far higher.",
    "Canaries were drawn at random and are not like real records: rarer texts are often remembered "
    "better.",
)


@dataclass(frozen=True)
class MadeCanaries:
    """What `unseen canary make` has written.

    Attributes:
        key: the key, which stays out of the training data.
        included: the file of the canaries that are to be trained on.
        n: canaries in the key, and how many of them are included.
        format: their record form.
        seed: None where the coins came from the operating system.
        sha256: of the key; noted down before training, it proves later that the coins are the same.
        largest: the largest epsilon that so many canaries can show (delta 1e-5, 95 %).
    """

    key: Path
    included: Path
    n: tuple[int, int]
    format: str
    seed: int | None
    sha256: str
    largest: float


def make(
    out: Path,
    n: int = 1000,
    *,
    seed: int | None = None,
    kind: str = "random-words",
    like: str | Path | None = None,
    format: str = "auto",  # noqa: A002
    column: Mapping[str, str] | None = None,
) -> MadeCanaries:
    """Draws canaries, and writes the key and what is to be trained on. As `canaries.draw`."""
    key = canaries.draw(n, seed=seed, kind=kind, like=like, format=format, column=column)
    files = canaries.write(key, out)
    largest = one_run.largest(n, delta=CanaryAudit().delta, confidence=0.95)
    return MadeCanaries(*files, (n, int(key.included.sum())), key.format, seed, key.sha256, largest)


def configure(**given: Any) -> CanaryAudit:
    """A configuration from Python arguments.

    Raises:
        ConfigError: all faults at once, each with the field and what was expected.
    """
    for name in given:
        if name not in CanaryAudit.model_fields:
            raise UnknownNameError("option of a canary audit", name, CanaryAudit.model_fields)
    return made_of(CanaryAudit, given)


def audit_canaries(
    config: CanaryAudit,
    *,
    target: LogprobTarget | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
    report: Report | None = None,
) -> tuple[RunFolder, Results]:
    """Runs, or continues, an audit of canaries. Arguments and result as those of `audit`.

    Raises:
        UnseenError: with what is wrong and what to do; nothing is measured before the key and the
            attacks are found sound.
    """
    say = note or (lambda _: None)
    if target is None and not config.model:
        raise ConfigError("no model is named", fix="unseen canary audit --key KEY --model MODEL")
    key = _key(config)
    attacks = _attacks(config, target)
    config = config.model_copy(update={"attacks": tuple(label(attack) for attack in attacks)})
    if config.split_origin == "unknown":
        config = config.model_copy(update={"split_origin": "random"})
    say(f"epsilon is bounded by {', '.join(config.attacks)}: chosen before any score is seen")
    ended: list[Results] = []

    def finish(folder: RunFolder, results: Results) -> None:
        about = folder.read_json("run.json")
        done = _with_epsilon(folder, results, key, config)
        folder.write_json("run.json", {**about, "scenario": "canary", "key_sha256": key.sha256})
        folder.write_json("results.json", done.model_dump(mode="json"))
        if report is not None:
            report(folder, done)
        ended.append(done)

    folder, _ = audit(
        config, target=target, records=key.records(), progress=progress, note=note, report=finish
    )
    return folder, ended[-1]


def epsilon_of(
    scores: ArrayLike | Mapping[str, float],
    included: CanaryKey | ArrayLike,
    *,
    fair_coins: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: int | None = None,
    seed: int = 0,
) -> Epsilon:
    """The one-run epsilon of scores that were made elsewhere.

    Args:
        scores: (n,) higher = more likely included, in the order of `included`; or, with a key, by
            canary id. One attack, chosen before its scores were seen: of k attacks, take each at
            confidence 1 - (1 - confidence) / k.
        included: the key, or (n,) true or 1 for included records.
        fair_coins: without a key: an independent fair coin decided on each record. Otherwise the
            result is `indicative`, and no bound.
        delta: of the (epsilon, delta) that is bounded.
        confidence: of the bound.
        guesses: how many records are guessed, fixed in advance; None tries four numbers.
        seed: breaks ties among scores.

    Raises:
        UsageError: where lengths differ, a score is not finite, a side is empty, or the coins are
            not fair.
    """
    if isinstance(included, CanaryKey):
        values, coins = _by_key(scores, included)
        bound, canaries_ = True, len(included)
        one_run.check_fair(included.included)
    else:
        if isinstance(scores, Mapping):
            raise UsageError("scores by id need the key", fix="canary_bound(scores, CanaryKey)")
        values, coins = _numbers(scores), _coins(included)
        bound, canaries_ = fair_coins, len(coins)
        if bound:
            one_run.check_fair(coins)
    if len(values) != len(coins):
        raise UsageError(f"got {len(values)} scores for {len(coins)} records, expected as many")
    _both_sides(coins)
    config = configure(delta=delta, confidence=confidence, guesses=guesses, seed=seed)
    tried = one_run.numbers(len(values), config.guesses)
    looks = one_run.look("scores", values, coins, tried, _rng(config, _LOOKS))
    return _epsilon(looks, canaries_, config, bound=bound)


# --- before ------------------------------------------------------------------------------------


def _key(config: CanaryAudit) -> CanaryKey:
    given = changed(config, _OF_FILES)
    if given:
        flags = ", ".join(given)
        raise ConfigError(
            f"got {flags}, but the canaries and their form come from the key",
            fix=f"leave {flags} out",
        )
    if not config.key:
        raise ConfigError("no key is named", fix=f"--key DIR/{canaries.KEY}, of unseen canary make")
    key = canaries.read(config.key)
    one_run.check_fair(key.included)
    one_run.check_delta(config.delta, len(key))
    one_run.numbers(len(key), config.guesses)
    return key


def _attacks(config: CanaryAudit, target: LogprobTarget | None) -> tuple[Attack, ...]:
    """The attacks of the bound, none of which may know a coin."""
    specs = config.attacks
    if specs == (AUTO,):
        specs = ("reference" if _has_reference(config, target) else "loss",)
    found: dict[str, Attack] = {}
    for spec in specs:
        if spec in ("default", "all", AUTO):
            raise ConfigError(
                f"got the attacks {', '.join(specs)}: the bound pays for every attack, so each has "
                "to be named",
                fix="--attacks loss, or leave --attacks out",
            )
        attack = create(spec)
        why = None
        if is_blind(attack):
            why = "it asks no model"
        elif is_fitted(attack):
            why = "it learns from coins of other canaries"
        elif known_needed(attack.signals()) != (0, 0):
            why = "it is told coins of other canaries"
        if why is not None:
            raise ConfigError(
                f"attack {label(attack)} gives no bound: {why}", fix="--attacks loss,min_k_pp"
            )
        found[label(attack)] = attack
    return tuple(found.values())


def _has_reference(config: CanaryAudit, target: LogprobTarget | None) -> bool:
    """Whether there will be a reference model, as far as can be told without loading one."""
    if config.reference not in ("auto", "base", "none"):
        return True
    if config.reference == "none":
        return False
    if target is not None:
        own = getattr(target, "reference", None) is not None
        return own or bool(getattr(target, "has_base", False))
    adapter = config.adapter is not None or (Path(config.model) / "adapter_config.json").is_file()
    return adapter or config.model.startswith("fake/")


# --- after -------------------------------------------------------------------------------------


def _with_epsilon(
    folder: RunFolder, results: Results, key: CanaryKey, config: CanaryAudit
) -> Results:
    _, scored = Subjects.from_table(folder.read_table("records.parquet"))
    coins = dict(zip(key.ids, key.included.tolist(), strict=True))
    looks: list[one_run.Look] = []
    ranked: dict[str, one_run.RankTest] = {}
    fewest = len(key)
    ties, draws = _rng(config, _LOOKS), _rng(config, _RANKS)
    for name in config.attacks:
        values, included = _in_order(scored.target[name], key, coins)
        fewest = min(fewest, len(values))
        if len(values) < 2 or included.all() or not included.any():
            continue
        tried = one_run.numbers(len(values), _at_most(config.guesses, len(values)))
        looks += one_run.look(name, values, included, tried, ties)
        ranked[name] = one_run.rank_test(values, included, draws)
    checks = [_coins_check(key, fewest)]
    epsilon = None
    if looks:
        epsilon = _epsilon(looks, len(key), config, bound=True)
        checks.append(_rank_check(ranked))
    more: tuple[str, ...] = LIMITATIONS
    if key.seed is not None:
        more += (f"The coins come from seed {key.seed}: the bound holds only where nobody who trained "
                 "the model knew it.",)  # fmt: skip
    return results.model_copy(
        update={
            "run": results.run.model_copy(update={"scenario": "canary"}),
            "epsilon": epsilon,
            "checks": (*results.checks, *checks),
            "limitations": (*results.limitations, *more),
        }
    )


def _at_most(guesses: int | None, scored: int) -> int | None:
    """Canaries without a score cannot be guessed; which those are, their texts decide, not coins."""
    return None if guesses is None else min(guesses, scored)


def _in_order(
    scores: Scores, key: CanaryKey, coins: Mapping[str, bool]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores and coins in the order of the key: that of the table puts included canaries first."""
    by_id = dict(zip(scores.ids, scores.values.tolist(), strict=True))
    ids = [id_ for id_ in key.ids if id_ in by_id]
    return np.array([by_id[id_] for id_ in ids]), np.array([coins[id_] for id_ in ids], dtype=bool)


def _epsilon(looks: list[one_run.Look], n: int, config: CanaryAudit, *, bound: bool) -> Epsilon:
    found = one_run.bound(looks, n, delta=config.delta, confidence=config.confidence)
    paid = (
        "fixed in advance"
        if found.looks == 1
        else f"the best of {found.looks} looks fixed in advance, and paid for (Bonferroni)"
    )
    name = METHOD if bound else f"arithmetic of the {METHOD}, without recorded coins: no bound"
    return Epsilon(
        kind="bound" if bound else "indicative",
        lower=found.lower,
        delta=found.delta,
        confidence=found.confidence,
        method=f"{name}; attack {found.best.attack}, {found.best.guesses} of {n} guessed, {paid}",
        guesses=found.best.guesses,
        correct=found.best.correct,
    )


def _coins_check(key: CanaryKey, fewest: int) -> Check:
    n, k = len(key), int(key.included.sum())
    origin = "the operating system" if key.seed is None else f"seed {key.seed}"
    left = "" if fewest == n else f"; {n - fewest} canaries have no score and are not guessed"
    return Check(
        id="canary_coins",
        title="coins of the canaries",
        status="pass",
        value=k / n,
        ci=clopper_pearson(k, n),
        limit="an independent fair coin for each canary, thrown before training",
        detail=f"{k} of {n} are included, by coins from {origin}; the key is as it was written "
        f"(sha256 {key.sha256[:12]}…){left}",
    )


def _rank_check(ranked: Mapping[str, one_run.RankTest]) -> Check:
    """The rank test of the attack with the smallest p-value, which pays for the others."""
    name, best = min(ranked.items(), key=lambda item: item[1].p)
    p = min(1.0, best.p * len(ranked))
    verb = "rank above" if p <= 0.05 else "do not measurably rank above"
    paid = "" if len(ranked) == 1 else f", corrected for {len(ranked)} attacks"
    return Check(
        id="canary_rank",
        title="rank test of the canaries",
        status="pass",
        value=p,
        limit="none: the coins make this p-value exact, whatever it is",
        detail=f"the {best.n[0]} included canaries {verb} the {best.n[1]} excluded ones by {name}: "
        f"p = {p:.2g} (permutation{paid}), AUC {best.auc:.3f}, median exposure "
        f"{best.exposure:.1f} bits (chance 1, at most {math.log2(best.n[1] + 1):.1f})",
    )


# --- scores made elsewhere ---------------------------------------------------------------------


def _by_key(
    scores: ArrayLike | Mapping[str, float], key: CanaryKey
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if not isinstance(scores, Mapping):
        return _numbers(scores), key.included
    unknown = [str(id_) for id_ in scores if id_ not in set(key.ids)]
    if unknown:
        raise UnknownNameError("canary", unknown[0], key.ids)
    kept = np.array([id_ in scores for id_ in key.ids], dtype=bool)
    return _numbers([scores[id_] for id_ in key.ids if id_ in scores]), key.included[kept]


def _numbers(scores: ArrayLike) -> np.ndarray[Any, Any]:
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError("scores: expected one number a record") from error
    if values.ndim != 1 or not np.isfinite(values).all():
        raise UsageError(
            "scores: expected one finite number a record",
            fix="leave records without a score out, or give scores by id with the key",
        )
    return values


def _coins(included: ArrayLike) -> np.ndarray[Any, Any]:
    values = np.asarray(included)
    if values.ndim != 1 or not np.isin(values, (0, 1)).all():
        raise UsageError("included: expected true/false or 1/0, one a record")
    return values.astype(bool)


def _both_sides(coins: np.ndarray[Any, Any]) -> None:
    if len(coins) < 2 or coins.all() or not coins.any():
        raise UsageError("there are no records on one side: included and excluded ones are needed")


def _rng(config: CanaryAudit, stream: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, stream])
