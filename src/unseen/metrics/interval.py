"""Intervals for AUC, for TPR at an FPR, and for plain rates; clusters count as one.

Which interval is right depends on where the threshold comes from:

- fixed on other records: `rate_interval` (Clopper-Pearson) for TPR and for FPR;
- found on the same records: `tpr_interval`, which carries the threshold's uncertainty too.
  Clopper-Pearson is too short there: its 95 % are 83 % at chance and below 50 % where
  the ROC curve is steep (tests/metrics/test_coverage.py).

Clusters (author, document, user) are never split: bootstraps draw whole clusters, rates use
the number of independent records that the clusters are worth. Members and non-members of one
cluster are treated as independent of each other, which errs on the wide side where they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from unseen.metrics._checks import Labels, codes, enough, finite, in_order, rate
from unseen.metrics.roc import allowed, auc, reach, tpr_at_fpr
from unseen.types import BoolArray, Estimate, FloatArray, IntArray

_CELLS = 2_000_000
"""Numbers that a bootstrap holds in memory at a time."""


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact binomial interval for k successes in n independent trials.

    Clopper & Pearson (1934): quantiles of Beta(k, n - k + 1) and Beta(k + 1, n - k); 0 at k = 0
    and 1 at k = n. Covers at least `confidence`, whatever the true rate.

    Args:
        k: successes.
        n: trials, at least 1.
        confidence: between 0 and 1.

    Raises:
        ValueError: where k is not in 0 ... n, n < 1 or confidence is no rate.
    """
    if n < 1 or not 0 <= k <= n:
        msg = f"got {k} of {n}, expected 0 to n of at least 1"
        raise ValueError(msg)
    return _clopper_pearson(float(k), float(n), rate(confidence, "confidence"))


def _clopper_pearson(k: float, n: float, confidence: float) -> tuple[float, float]:
    """The same for effective, fractional counts."""
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(k, n - k + 1, tail)) if k > 0 else 0.0
    high = float(special.betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return low, high


def effective_size(
    flagged: BoolArray, clusters: Labels | None = None, confidence: float = 0.95
) -> float:
    """Independent records that clustered ones are worth when a rate is estimated from them.

    Korn & Graubard (1998): n over the design effect (variance between clusters over binomial
    variance), times the squared ratio of Student quantiles that pays for estimating it from few
    clusters. Never more than n, never less than n^2 / sum of squared cluster sizes, which is
    what is left where clusters agree entirely; where all or none are flagged that is the answer.

    Args:
        flagged: (n,) what is counted.
        clusters: (n,) labels; None: every record stands alone.
        confidence: of the interval that the size is for.

    Returns:
        A number from 1 to n.
    """
    n = len(flagged)
    code = codes(clusters, n)
    sizes = np.bincount(code)
    if sizes.size == n:
        return float(n)
    least = n**2 / float(np.sum(sizes**2))
    share = float(np.mean(flagged))
    if share in (0.0, 1.0) or sizes.size == 1:
        return least
    gap = np.bincount(code, weights=flagged) - share * sizes
    between = sizes.size / (sizes.size - 1) * float(np.sum(gap**2)) / n**2
    design = between / (share * (1 - share) / n)
    quantile = 1 - (1 - confidence) / 2
    few = special.stdtrit(n - 1, quantile) / special.stdtrit(sizes.size - 1, quantile)
    worth = n / design * few**2 if design > 0 else float(n)
    return float(min(max(worth, least), n))


def rate_interval(
    flagged: BoolArray, *, confidence: float = 0.95, clusters: Labels | None = None
) -> tuple[float, float]:
    """Clopper-Pearson interval for the share of flagged records, at a threshold set elsewhere.

    With clusters, on the effective number of records (Korn & Graubard 1998).

    Args:
        flagged: (n,) whether each record was flagged.
        confidence: between 0 and 1.
        clusters: (n,) labels of records that belong together.

    Raises:
        ValueError: where nothing is given.
    """
    if len(flagged) == 0:
        msg = "flagged is empty: a rate needs at least one record"
        raise ValueError(msg)
    size = effective_size(flagged, clusters, rate(confidence, "confidence"))
    return _clopper_pearson(float(np.mean(flagged)) * size, size, confidence)


# --- AUC ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogitAuc:
    """An AUC on the scale where its distribution is closest to normal.

    Attributes:
        value: the AUC itself.
        variance: its bootstrap variance, of the AUC itself.
        logit: log(AUC / (1 - AUC)), kept half a record away from 0 and 1.
        error: standard error of `logit`, with the floor for what was not seen.
        quantile: how many standard errors the interval reaches to each side.
        confidence: coverage that the interval aims at.
        draws: bootstrap draws.
        n_members: members that entered.
        n_nonmembers: non-members that entered.
    """

    value: float
    variance: float
    logit: float
    error: float
    quantile: float
    confidence: float
    draws: int
    n_members: int
    n_nonmembers: int

    def estimate(self) -> Estimate:
        """The AUC with the interval that `auc_interval` describes."""
        ends = [self.value, *_expit_around(self.logit, self.quantile * self.error)]
        if 0 < self.value < 1:
            error = float(np.sqrt(self.variance)) / (self.value * (1 - self.value))
            ends += _expit_around(float(special.logit(self.value)), self.quantile * error)
        return Estimate(
            value=self.value,
            low=min(ends),
            high=max(ends),
            confidence=self.confidence,
            method=f"AUC, stratified bootstrap ({self.draws} draws), logit scale",
            n_members=self.n_members,
            n_nonmembers=self.n_nonmembers,
        )


def _expit_around(center: float, width: float) -> tuple[float, float]:
    return float(special.expit(center - width)), float(special.expit(center + width))


def auc_interval(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    draws: int = 2000,
    member_clusters: Labels | None = None,
    nonmember_clusters: Labels | None = None,
    together: bool = False,
) -> Estimate:
    """AUC with a stratified bootstrap interval on the logit scale.

    Both sides are resampled apart, whole clusters at a time, one cluster fewer than there are,
    which makes the bootstrap variance unbiased (Rao & Wu 1988). With u = the smaller number of
    records (or clusters) of the two sides, the interval is logit(AUC) plus and minus standard
    errors times Student's quantile at u - 1 degrees of freedom (the side with fewer records
    decides how well the error is known). On that scale it stays in (0, 1) and covers near 1,
    where percentiles of the bootstrap do not (Newcombe 2006).

    A bootstrap cannot draw what was never seen. Full separation happens with probability up to
    AUC^u, so all that it shows is AUC >= (alpha / 2)^(1 / u), and no method can say more without
    assumptions on the distribution. A floor under the standard error, of order 1 / u, makes that
    bound the lower end at full separation and fades out of sight elsewhere; the interval is the
    hull of those with and without it. It never has width zero.

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.
        rng: draws the bootstrap; the result does not depend on the order of the records.
        confidence: between 0 and 1.
        draws: bootstrap draws.
        member_clusters: (m,) labels of members that belong together.
        nonmember_clusters: (n,) the same for non-members.
        together: whether clusters with records of both sides are drawn for both at once, so that what
            the two have in common is taken off: for records that are judged as members and as
            non-members.

    Raises:
        ValueError: where a score is not finite or the lengths differ.
        TooFewRecordsError: below `MIN_PER_SIDE` records, or clusters, a side.
    """
    return auc_logit(
        members,
        nonmembers,
        rng=rng,
        confidence=confidence,
        draws=draws,
        member_clusters=member_clusters,
        nonmember_clusters=nonmember_clusters,
        together=together,
    ).estimate()


def auc_logit(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    draws: int = 2000,
    member_clusters: Labels | None = None,
    nonmember_clusters: Labels | None = None,
    together: bool = False,
) -> LogitAuc:
    """AUC, its logit and both errors; arguments and errors as of `auc_interval`."""
    members, nonmembers = finite(members, "member scores"), finite(nonmembers, "non-member scores")
    rate(confidence, "confidence")
    if draws < 2:
        msg = f"draws must be at least 2, got {draws}"
        raise ValueError(msg)
    enough(members.size, nonmembers.size)
    if together and member_clusters is not None and nonmember_clusters is not None:
        values, member, code = in_order(
            np.concatenate([members, nonmembers]),
            np.arange(members.size + nonmembers.size) < members.size,
            [*member_clusters, *nonmember_clusters],
        )
        members, member_code = values[member], code[member]
        nonmembers, nonmember_code = values[~member], code[~member]
    else:
        together = False
        members, _, member_code = in_order(members, np.ones(members.size, bool), member_clusters)
        nonmembers, _, nonmember_code = in_order(
            nonmembers, np.zeros(nonmembers.size, bool), nonmember_clusters
        )
    units = (np.unique(member_code).size, np.unique(nonmember_code).size)
    enough(*units, what="clusters")

    value = auc(members, nonmembers)
    drawn = _bootstrap_auc(
        members, nonmembers, member_code, nonmember_code, draws, rng, together=together
    )
    variance = float(drawn.var(ddof=1))

    fewest = min(units)
    tail, half = (1 - confidence) / 2, 0.5 / fewest
    quantile = float(special.stdtrit(fewest - 1, 1 - tail))
    bound = tail ** (1 / fewest)
    floor = (special.logit(1 - half) - special.logit(bound)) / quantile
    floor *= half * (1 - half)  # from the logit scale at 1 - half to the scale of the AUC
    kept = min(max(value, half), 1 - half)
    return LogitAuc(
        value=value,
        variance=variance,
        logit=float(special.logit(kept)),
        error=float(np.sqrt(variance + floor**2) / (kept * (1 - kept))),
        quantile=quantile,
        confidence=confidence,
        draws=draws,
        n_members=members.size,
        n_nonmembers=nonmembers.size,
    )


def _bootstrap_auc(
    members: FloatArray,
    nonmembers: FloatArray,
    member_code: IntArray,
    nonmember_code: IntArray,
    draws: int,
    rng: np.random.Generator,
    *,
    together: bool,
) -> FloatArray:
    """AUC of each draw, shape (draws,); scores ascending, codes 0 ... clusters - 1.

    Codes are of each side by itself, or, drawn together, of both.
    """
    below = np.searchsorted(nonmembers, members, side="left")
    upto = np.searchsorted(nonmembers, members, side="right")
    found = np.empty(draws)
    rows = max(1, _CELLS // (members.size + nonmembers.size))
    for start in range(0, draws, rows):
        some = min(rows, draws - start)
        weights, against = drawn_weights(
            member_code, nonmember_code, partial(_draw, draws=some, rng=rng), together=together
        )
        # Non-members drawn below each score: one running sum a draw, read at each member's place.
        running = np.zeros((some, nonmembers.size + 1), dtype=np.int64)
        np.cumsum(against, axis=1, out=running[:, 1:])
        wins = np.einsum("dm,dm->d", weights, running[:, below] + running[:, upto])
        found[start : start + some] = wins / (2 * weights.sum(axis=1) * running[:, -1])
    return found


def drawn_weights(
    member_code: IntArray,
    nonmember_code: IntArray,
    draw: Callable[[int], IntArray],
    *,
    together: bool,
) -> tuple[IntArray, IntArray]:
    """How often each record is drawn, shapes (draws, m) and (draws, n).

    Args:
        member_code: (m,) clusters of the members, numbered from 0.
        nonmember_code: (n,) of the non-members, numbered by themselves; together, as those of members.
        draw: how often each of n clusters is drawn, shape (draws, n).
        together: whether a cluster is drawn for both sides at once; those that have one side alone
            are then drawn among themselves.
    """
    if not together:
        weights = draw(int(member_code.max()) + 1)[:, member_code]
        return weights, draw(int(nonmember_code.max()) + 1)[:, nonmember_code]
    n = int(max(member_code.max(), nonmember_code.max())) + 1
    has = [np.bincount(code, minlength=n) > 0 for code in (member_code, nonmember_code)]
    kinds = (has[0] & has[1], has[0] & ~has[1], has[1] & ~has[0])
    parts = [(kind, draw(int(kind.sum()))) for kind in kinds if kind.sum() > 1]
    drawn = np.ones((len(parts[0][1]), n), dtype=np.int64)  # one of its kind is always there
    for kind, part in parts:
        drawn[:, kind] = part
    return drawn[:, member_code], drawn[:, nonmember_code]


def _draw(n: int, draws: int, rng: np.random.Generator) -> IntArray:
    """How often each of n is drawn when n - 1 are drawn with replacement, shape (draws, n)."""
    drawn = rng.integers(0, n, size=(draws, n - 1)) + n * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * n).reshape(draws, n)


# --- TPR at an FPR ----------------------------------------------------------------------------


def tpr_interval(
    members: ArrayLike,
    nonmembers: ArrayLike,
    fpr: float,
    *,
    confidence: float = 0.95,
    member_clusters: Labels | None = None,
    nonmember_clusters: Labels | None = None,
) -> Estimate:
    """The largest TPR with FPR <= `fpr`, with an interval for the population's.

    The interval melds two exact statements (Fay, Proschan & Brittain 2015). With N non-members
    above a threshold, its true FPR has the confidence distribution between Beta(N, n - N + 1)
    and Beta(N + 1, n - N), so the chance that the threshold is admissible is that of an FPR
    below `fpr`; with k(N) members above it, the TPR is between Beta(k, m - k + 1) and
    Beta(k + 1, m - k). The distribution of the TPR is the mixture over N (the means of the two
    bounds at each step, as in mid-p intervals), and the interval is cut from its tails. It is
    closed form, invariant to monotone maps of the scores and to the order of the records, and
    needs no random numbers. As n grows it is the percentile bootstrap; with few expected false
    positives it also counts what a bootstrap never draws: thresholds above all non-members.

    Where a block of equal non-member scores is wider than the threshold's uncertainty, the
    population's TPR at that FPR may sit on a jump, and tails of a mixture miss it with up to
    c (1 + log(1 / c)) when c is cut on each side (the product of two uniform p-values). There
    the tails are cut at the c that makes this 1 - confidence.

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.
        fpr: between 0 and 1; the interval also holds where n cannot resolve it (its low end is
            then 0), but the value means little: see `resolution`.
        confidence: between 0 and 1.
        member_clusters: (m,) labels of members that belong together.
        nonmember_clusters: (n,) the same for non-members.

    Raises:
        ValueError: where a score is not finite, the lengths differ or fpr is no rate.
        TooFewRecordsError: below `MIN_PER_SIDE` records, or clusters, a side.
    """
    members, nonmembers = finite(members, "member scores"), finite(nonmembers, "non-member scores")
    rate(fpr, "fpr")
    rate(confidence, "confidence")
    enough(members.size, nonmembers.size)
    if member_clusters is not None or nonmember_clusters is not None:
        enough(
            np.unique(codes(member_clusters, members.size)).size,
            np.unique(codes(nonmember_clusters, nonmembers.size)).size,
            what="clusters",
        )
    first_denied = np.sort(nonmembers)[::-1][allowed(nonmembers.size, fpr)]
    m_worth = effective_size(members > first_denied, member_clusters, confidence)
    n_worth = effective_size(nonmembers > first_denied, nonmember_clusters, confidence)

    steps, weights = _admissible(nonmembers.size, n_worth, fpr)
    tail = (1 - confidence) / 2
    if _on_a_block(nonmembers, steps, weights, tail):
        tail = _tail_on_a_jump(confidence)
    can = np.insert(reach(members, nonmembers), 0, 0)  # nobody, where no threshold will do
    flagged, place = np.unique(can[steps + 1], return_inverse=True)
    shares = flagged / members.size
    masses = np.bincount(place, weights=weights).astype(np.float64)
    low, high = _mixture_ends(shares, masses, m_worth, tail)
    value = tpr_at_fpr(members, nonmembers, fpr).tpr
    return Estimate(
        value=value,
        low=min(low, value),
        high=max(high, value),
        confidence=confidence,
        method=f"largest TPR with FPR <= {fpr:g}, melded interval",
        n_members=members.size,
        n_nonmembers=nonmembers.size,
    )


def _below(limit: FloatArray | float, hits: FloatArray, misses: FloatArray) -> FloatArray:
    """P(rate <= limit) when its confidence distribution lies midway between its two bounds.

    The bounds are Beta(hits, misses + 1) and Beta(hits + 1, misses); with no hits the former is
    a point at 0, with no misses the latter is a point at 1.
    """
    upper = np.where(hits > 0, special.betainc(np.maximum(hits, 1e-9), misses + 1, limit), 1.0)
    lower = np.where(misses > 0, special.betainc(hits + 1, np.maximum(misses, 1e-9), limit), 0.0)
    mean: FloatArray = (upper + lower) / 2
    return mean


def _admissible(n: int, worth: float, fpr: float) -> tuple[IntArray, FloatArray]:
    """How many false positives may be made: counts, shape (s,), and their weights, (s,).

    The weight of N is the confidence that N, and not N + 1, false positives on these records
    still mean a true FPR of at most `fpr`. It is that of -1 where not even the threshold just
    above all non-members is low enough in FPR, so that none that these records know will do.
    """
    steps = np.arange(-1, n + 1)
    made = steps[1:] * (worth / n)
    admissible = _below(fpr, made, worth - made)
    weights = -np.diff(np.concatenate([[1.0], admissible, [0.0]]))
    some = weights > 1e-12
    return steps[some], weights[some] / weights[some].sum()


def _on_a_block(nonmembers: FloatArray, steps: IntArray, weights: FloatArray, tail: float) -> bool:
    """Whether equal non-member scores make the threshold jump further than it is uncertain."""
    running = np.cumsum(weights)
    first = steps[np.count_nonzero(running < tail)]
    last = steps[min(int(np.count_nonzero(running < 1 - tail)), steps.size - 1)]
    spread = float(np.sqrt(np.sum(weights * (steps - np.sum(weights * steps)) ** 2)))
    sizes = np.unique(-nonmembers, return_counts=True)[1]
    ends = np.cumsum(sizes)
    reached = (ends - sizes <= last) & (ends >= first)
    return bool(np.any(sizes[reached] >= max(2.0, spread)))


def _tail_on_a_jump(confidence: float) -> float:
    """The c with c (1 + log(1 / c)) = 1 - confidence."""
    miss = 1 - confidence
    return float(brentq(lambda c: c * (1 - np.log(c)) - miss, 1e-300, miss))


def _mixture_ends(
    shares: FloatArray, weights: FloatArray, worth: float, tail: float
) -> tuple[float, float]:
    """Where a mixture of rate distributions leaves `tail` on each side."""
    hits, misses = shares * worth, (1 - shares) * worth

    def below(limit: float) -> float:
        return float(np.sum(weights * _below(limit, hits, misses)))

    return _quantile(below, tail), _quantile(below, 1 - tail)


def _quantile(below: Callable[[float], float], level: float) -> float:
    """Where an ascending function on [0, 1], continuous inside, passes `level`."""
    if below(0.0) >= level:
        return 0.0
    if below(1.0) <= level:
        return 1.0
    return float(brentq(lambda x: below(x) - level, 0.0, 1.0, xtol=1e-12))
