"""Several measurements of each record: how large they are, and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unseen.metrics._checks import Labels, codes, enough, finite, rate
from unseen.types import Estimate, FloatArray, IntArray

NAMES = ("size", "spread", "agreement")

_CELLS = 2_000_000
"""Numbers that a bootstrap holds in memory at a time."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """What repeated measurements of records say, with bootstrap intervals over the records.

    Attributes:
        size: mean over records of the mean absolute value.
        spread: mean over records of the standard deviation within a record.
        agreement: intraclass correlation ICC(1): the share of the variance that lies between records;
            0 and below where a record's values are no more alike than those of different records. None
            where nothing varies. None as a difference of two sides where either is None.
    """

    size: Estimate
    spread: Estimate
    agreement: Estimate | None


def repeated(
    members: Sequence[FloatArray],
    nonmembers: Sequence[FloatArray],
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    draws: int = 2000,
    clusters: tuple[Labels | None, Labels | None] = (None, None),
) -> tuple[Repeated, Repeated, Repeated]:
    """Repeated measurements of members, of non-members, and members minus non-members.

    Intervals are percentiles of a bootstrap that takes records, whole clusters at a time, each side apart.

    Args:
        members: of each, two or more finite values.
        nonmembers: the same.
        rng: draws the bootstrap.
        confidence: between 0 and 1.
        draws: bootstrap draws, at least 2.
        clusters: labels of records that belong together, of each side.

    Raises:
        ValueError: where a value is not finite, or a record has fewer than two.
        TooFewRecordsError: below `MIN_PER_SIDE` records, or clusters, a side.
    """
    rate(confidence, "confidence")
    enough(len(members), len(nonmembers))
    sides = [_parts(one) for one in (members, nonmembers)]
    units = [codes(one, len(of[0])) for one, of in zip(clusters, sides, strict=True)]
    enough(*(np.unique(one).size for one in units), what="clusters")
    points = [_numbers(parts, np.ones((1, len(parts[0]))))[:, 0] for parts in sides]
    drawn = [_bootstrap(parts, code, draws, rng) for parts, code in zip(sides, units, strict=True)]
    n = (len(members), len(nonmembers))
    method = f"percentile bootstrap over records ({draws} draws)"

    def made(value: FloatArray, of: FloatArray, counts: tuple[int, int]) -> Repeated:
        tail = (1 - confidence) / 2
        found: list[Estimate | None] = []
        for point, row in zip(value.tolist(), of, strict=True):
            if not np.isfinite(point) or not np.isfinite(row).any():
                found.append(None)
                continue
            low, high = np.nanquantile(row, [tail, 1 - tail]).tolist()
            low, high = min(low, point), max(high, point)
            found.append(Estimate(point, low, high, confidence, method, *counts))
        size, spread, agreement = found
        assert size is not None  # noqa: S101 (only an agreement can be undefined)
        assert spread is not None  # noqa: S101
        return Repeated(size, spread, agreement)

    return (
        made(points[0], drawn[0], (n[0], 0)),
        made(points[1], drawn[1], (0, n[1])),
        made(points[0] - points[1], drawn[0] - drawn[1], n),
    )


def _parts(values: Sequence[FloatArray]) -> FloatArray:
    """Of each record: number of values, mean, squares within, mean size, deviation; shape (5, records)."""
    columns = []
    for one in values:
        row = finite(one, "values")
        if row.size < 2:
            msg = f"a record needs two values or more, got {row.size}"
            raise ValueError(msg)
        within = float(((row - row.mean()) ** 2).sum())
        columns.append(
            (row.size, row.mean(), within, np.abs(row).mean(), np.sqrt(within / (row.size - 1)))
        )
    return np.array(columns, dtype=np.float64).T


def _numbers(parts: FloatArray, weights: FloatArray) -> FloatArray:
    """Size, spread and agreement where records count as often as they were drawn, shape (3, draws)."""
    k, mean, within, size, deviation = parts
    n_records, n_values = weights.sum(axis=1), weights @ k
    mean = mean - mean.mean()  # only differences count, and large means would hide them
    center = weights @ (k * mean) / n_values
    between = weights @ (k * mean**2) - n_values * center**2
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_between = np.maximum(between, 0.0) / (n_records - 1)
        mean_within = weights @ within / (n_values - n_records)
        usual = (n_values - weights @ k**2 / n_values) / (n_records - 1)
        agreement = (mean_between - mean_within) / (mean_between + (usual - 1) * mean_within)
    return np.stack([weights @ size / n_records, weights @ deviation / n_records, agreement])


def _bootstrap(
    parts: FloatArray, code: IntArray, draws: int, rng: np.random.Generator
) -> FloatArray:
    """The numbers in every draw, shape (3, draws)."""
    _, number = np.unique(code, return_inverse=True)
    n, found = int(number.max()) + 1, []
    rows = max(1, _CELLS // len(code))
    for start in range(0, draws, rows):
        some = min(rows, draws - start)
        drawn = rng.integers(0, n, size=(some, n)) + n * np.arange(some)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=some * n).reshape(some, n)
        found.append(_numbers(parts, counts[:, number].astype(np.float64)))
    return np.concatenate(found, axis=1)
