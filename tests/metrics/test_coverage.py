"""Do the intervals hold the truth as often as they say? By simulation, with known truths.

Members score N(d, 1), non-members N(0, 1): AUC = Phi(d / sqrt 2) and TPR at FPR t is
Phi(d - Phi^-1(1 - t)). A coverage from r runs may fall short of 95 % by three standard errors,
3 sqrt(0.95 * 0.05 / r); over all settings of a grid the mean may not fall short at all.
Seeds are 0, 1, 2, ...: none was picked.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from unseen.metrics.advantage import advantage, best_threshold
from unseen.metrics.crossfit import folds, tpr_at_fitted_threshold
from unseen.metrics.evaluate import evaluate
from unseen.metrics.interval import auc_interval, clopper_pearson, tpr_interval

RESOLVED = [(n, fpr) for n, fpr in product((60, 150, 500, 1000), (0.01, 0.05, 0.1)) if n * fpr >= 1]


def distance(auc):
    return norm.ppf(auc) * np.sqrt(2)


def true_tpr(auc, fpr):
    return norm.sf(norm.isf(fpr) - distance(auc))


def binormal(auc, m, n, rng):
    return rng.normal(distance(auc), 1, m), rng.normal(0, 1, n)


def holds(estimate, truth):
    return estimate.low <= truth <= estimate.high


def floor(runs):
    return 0.95 - 3 * np.sqrt(0.95 * 0.05 / runs)


def tpr_coverage(sample, truth, fpr, runs):
    hits = [holds(tpr_interval(*sample(np.random.default_rng(i)), fpr), truth) for i in range(runs)]
    return np.mean(hits)


# --- the two promises ---------------------------------------------------------------------------


def test_shuffled_labels_over_200_seeds():
    """Chance level: the AUC interval covers 0.5 and the TPR interval the FPR in >= 93 %."""
    pool = np.random.default_rng(2026).normal(size=300)
    hits = {}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        member = rng.permutation(300) < 150
        found = evaluate(pool, member, rng=rng, fprs=(0.01, 0.05, 0.1), bootstrap=400)
        hits.setdefault("auc", []).append(holds(found.auc, 0.5))
        hits.setdefault("advantage", []).append(holds(found.advantage, 0.0))
        for rate in found.tpr_at_fpr:
            hits.setdefault(rate.fpr, []).append(holds(rate.estimate, rate.fpr))
    coverage = {name: float(np.mean(values)) for name, values in hits.items()}
    assert len(coverage) == 5
    assert min(coverage.values()) >= 0.93, coverage


def test_planted_effect_over_200_seeds():
    """AUC 0.75: TPR 0.2448 at FPR 5 % and 0.3716 at 10 %."""
    hits = {}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        members, nonmembers = binormal(0.75, 150, 150, rng)
        auc = auc_interval(members, nonmembers, rng=rng, draws=300)
        hits.setdefault("auc", []).append(holds(auc, 0.75))
        for fpr, truth in ((0.05, 0.2448), (0.1, 0.3716)):
            found = tpr_interval(members, nonmembers, fpr)
            hits.setdefault(fpr, []).append(holds(found, truth))
            assert true_tpr(0.75, fpr) == pytest.approx(truth, abs=1e-4)
    coverage = {name: float(np.mean(values)) for name, values in hits.items()}
    assert min(coverage.values()) >= 0.93, coverage


def test_clopper_pearson_is_too_short_at_a_threshold_found_on_the_same_records():
    """The reason for `tpr_interval`: 95 % that are 83 % at chance, and half where ROC is steep."""
    for auc, fpr, at_most in ((0.5, 0.05, 0.9), (0.75, 0.05, 0.8), (0.95, 0.01, 0.6)):
        exact, melded = [], []
        for seed in range(150):
            members, nonmembers = binormal(auc, 500, 500, np.random.default_rng(seed))
            found = tpr_interval(members, nonmembers, fpr)
            low, high = clopper_pearson(round(found.value * 500), 500)
            exact.append(low <= true_tpr(auc, fpr) <= high)
            melded.append(holds(found, true_tpr(auc, fpr)))
        assert np.mean(exact) < at_most
        assert np.mean(melded) >= 0.93


# --- the grids ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_tpr_covers_at_every_size_rate_and_effect():
    runs, coverage = 200, {}
    for (n, fpr), auc in product(RESOLVED, (0.5, 0.6, 0.75, 0.95)):
        coverage[n, fpr, auc] = tpr_coverage(
            lambda rng, n=n, auc=auc: binormal(auc, n, n, rng), true_tpr(auc, fpr), fpr, runs
        )
    short = {setting: found for setting, found in coverage.items() if found < floor(runs)}
    assert not short
    assert np.mean(list(coverage.values())) >= 0.95


@pytest.mark.slow
def test_auc_covers_at_every_size_and_effect():
    runs, coverage = 200, {}
    sizes = [(10, 10), (60, 60), (150, 150), (300, 300), (30, 500), (500, 15)]
    for (m, n), auc in product(sizes, (0.5, 0.6, 0.75, 0.95, 0.99)):
        coverage[m, n, auc] = np.mean(
            [
                holds(auc_interval(*binormal(auc, m, n, rng), rng=rng, draws=200), auc)
                for rng in map(np.random.default_rng, range(runs))
            ]
        )
    short = {setting: found for setting, found in coverage.items() if found < floor(runs)}
    assert not short
    assert np.mean(list(coverage.values())) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(30, 500), (500, 60)])
def test_tpr_covers_when_one_side_is_small(m, n):
    for auc in (0.5, 0.75, 0.95):
        found = tpr_coverage(
            lambda rng, auc=auc: binormal(auc, m, n, rng), true_tpr(auc, 0.05), 0.05, 250
        )
        assert found >= floor(250)


def steps(auc, width):
    """Binormal scores in steps of `width`; the truth is the best step that is admissible."""

    def sample(rng, n=150):
        return tuple(np.floor(side / width) for side in binormal(auc, n, n, rng))

    def truth(fpr):
        edges = np.arange(-300, 300) * width
        return norm.sf(edges[norm.sf(edges) <= fpr].min() - distance(auc))

    return sample, truth


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.02, 0.2, 0.7])
def test_tpr_covers_with_tied_scores(width):
    for auc, fpr in product((0.5, 0.75, 0.95), (0.05, 0.1)):
        sample, truth = steps(auc, width)
        assert tpr_coverage(sample, truth(fpr), fpr, 250) >= floor(250)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.05, 0.0501, 0.07])
def test_tpr_covers_where_the_truth_jumps(share):
    """A yes-or-no score: 30 % of members and `share` of non-members say yes; FPR 5 %.

    At a share of 5 % the truth is 0.3 and just above it is 0: the hardest case that there is.
    """

    def sample(rng):
        return (rng.random(150) < 0.3) * 1.0, (rng.random(150) < share) * 1.0

    truth = 0.3 if share <= 0.05 else 0.0
    assert tpr_coverage(sample, truth, 0.05, 300) >= floor(300)


@pytest.mark.slow
def test_a_few_members_that_are_remembered_word_by_word():
    """5 % of members score above all else: TPR = 0.05 + 0.95 FPR at every FPR."""

    def sample(rng):
        members, nonmembers = binormal(0.5, 150, 150, rng)
        return np.where(rng.random(150) < 0.05, members + 50, members), nonmembers

    for fpr in (0.01, 0.05, 0.1):
        assert tpr_coverage(sample, 0.05 + 0.95 * fpr, fpr, 250) >= floor(250)


def clustered(auc, rng, n_clusters=30, size=5, share=0.6):
    """Scores with `share` of their variance between clusters; the marginal truth is as above."""
    sides = []
    for shift in (distance(auc), 0):
        between = np.repeat(rng.normal(0, np.sqrt(share), n_clusters), size)
        sides.append(shift + between + rng.normal(0, np.sqrt(1 - share), n_clusters * size))
    return (*sides, np.repeat(np.arange(n_clusters), size))


@pytest.mark.slow
@pytest.mark.parametrize("auc", [0.5, 0.75])
def test_clusters_are_needed_and_are_enough(auc):
    hits = {"auc": [], "auc alone": [], "tpr": [], "tpr alone": []}
    for seed in range(250):
        rng = np.random.default_rng(seed)
        members, nonmembers, code = clustered(auc, rng)
        both = {"member_clusters": code, "nonmember_clusters": code}
        for name, more in (("", both), (" alone", {})):
            found = auc_interval(members, nonmembers, rng=rng, draws=200, **more)
            hits[f"auc{name}"].append(holds(found, auc))
            rate = tpr_interval(members, nonmembers, 0.1, **more)
            hits[f"tpr{name}"].append(holds(rate, true_tpr(auc, 0.1)))
    assert np.mean(hits["auc"]) >= floor(250)
    assert np.mean(hits["tpr"]) >= floor(250)
    assert np.mean(hits["auc alone"]) < 0.85
    assert np.mean(hits["tpr alone"]) < 0.88


@pytest.mark.slow
@pytest.mark.parametrize(("n", "auc"), [(60, 0.5), (150, 0.75), (500, 0.95)])
def test_rates_at_thresholds_of_other_folds_cover(n, auc):
    """The truth is the rate that the fitted thresholds have on new records, mean over folds."""
    member = np.arange(2 * n) < n
    hits = {"tpr": [], "fpr": [], "advantage": []}
    realised = []
    for seed in range(250):
        rng = np.random.default_rng(seed)
        scores = np.concatenate(binormal(auc, n, n, rng))
        fold = folds(member, rng=rng)
        found = tpr_at_fitted_threshold(scores, member, fold, 0.1)
        thresholds = np.array(found.thresholds)
        hits["tpr"].append(holds(found.tpr, norm.sf(thresholds - distance(auc)).mean()))
        hits["fpr"].append(holds(found.fpr, norm.sf(thresholds).mean()))
        realised.append(norm.sf(thresholds).mean())
        best = np.array(
            [
                best_threshold(scores[(fold != f) & member], scores[(fold != f) & ~member])
                for f in (0, 1)
            ]
        )
        gain = norm.sf(best - distance(auc)) - norm.sf(best)
        hits["advantage"].append(holds(advantage(scores, member, fold), gain.mean()))
    assert min(np.mean(values) for values in hits.values()) >= floor(250)
    assert np.mean(realised) <= 0.1 + 3 * np.std(realised) / np.sqrt(250)


# --- the price ----------------------------------------------------------------------------------


def percentile_bootstrap(members, nonmembers, fpr, rng, draws=300):
    """TPR at FPR of both sides resampled: the usual interval, which falls short when n is small."""
    allowed, ordered = int(fpr * len(nonmembers)), np.sort(members)
    drawn = np.sort(rng.choice(nonmembers, (draws, len(nonmembers))), axis=1)[:, -allowed - 1]
    above = len(members) - np.searchsorted(ordered, drawn, side="right")
    return np.quantile(
        rng.binomial(len(members), above / len(members)) / len(members), [0.025, 0.975]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "fpr", "auc"), [(1000, 0.05, 0.5), (1000, 0.05, 0.75), (500, 0.1, 0.95)]
)
def test_the_interval_is_hardly_longer_than_the_bootstraps(n, fpr, auc):
    ours, usual = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        members, nonmembers = binormal(auc, n, n, rng)
        found = tpr_interval(members, nonmembers, fpr)
        ours.append(found.high - found.low)
        usual.append(np.ptp(percentile_bootstrap(members, nonmembers, fpr, rng)))
    assert np.mean(ours) < 1.08 * np.mean(usual)


@pytest.mark.slow
def test_the_percentile_bootstrap_falls_short_where_few_false_positives_are_expected():
    hits = []
    for seed in range(250):
        rng = np.random.default_rng(seed)
        low, high = percentile_bootstrap(*binormal(0.95, 150, 150, rng), 0.01, rng)
        hits.append(low <= true_tpr(0.95, 0.01) <= high)
    assert np.mean(hits) < 0.9
