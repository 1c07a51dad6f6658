import numpy as np
import pytest

from unseen.errors import TooFewRecordsError
from unseen.metrics.repeats import repeated


def drawn(rng, n: int, between: float, within: float, mean: float = 0.0) -> list[np.ndarray]:
    return [
        mean + rng.normal(scale=between) + rng.normal(scale=within, size=rng.integers(2, 6))
        for _ in range(n)
    ]


def slow(values: list[np.ndarray]) -> tuple[float, float, float]:
    """Size, spread and ICC(1) by one-way analysis of variance, value by value."""
    everything = [float(value) for row in values for value in row]
    grand = sum(everything) / len(everything)
    between = sum(len(row) * (row.mean() - grand) ** 2 for row in values)
    within = sum((value - row.mean()) ** 2 for row in values for value in row)
    n, total = len(values), len(everything)
    ms_between, ms_within = between / (n - 1), within / (total - n)
    k0 = (total - sum(len(row) ** 2 for row in values) / total) / (n - 1)
    return (
        float(np.mean([np.abs(row).mean() for row in values])),
        float(np.mean([row.std(ddof=1) for row in values])),
        (ms_between - ms_within) / (ms_between + (k0 - 1) * ms_within),
    )


def numbers(found) -> list[float]:
    return [found.size.value, found.spread.value, found.agreement.value]


def test_numbers_equal_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(0)
    sides = drawn(rng, 30, 2.0, 0.5), drawn(rng, 20, 0.1, 1.0, mean=1.0)
    members, nonmembers, difference = repeated(*sides, rng=rng, draws=200)
    expected = [slow(one) for one in sides]
    assert numbers(members) == pytest.approx(expected[0])
    assert numbers(nonmembers) == pytest.approx(expected[1])
    assert numbers(difference) == pytest.approx(np.subtract(*expected))
    assert (members.size.n_members, members.size.n_nonmembers) == (30, 0)
    assert (difference.size.n_members, difference.size.n_nonmembers) == (30, 20)
    far = [[row + 1e7 for row in side] for side in sides]
    moved = repeated(*far, rng=rng, draws=2)[0]
    assert moved.agreement.value == pytest.approx(members.agreement.value, rel=1e-6)
    assert members.agreement.value > 0.8
    assert nonmembers.agreement.value < 0.3
    assert difference.agreement.low > 0


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    hits = {"size": 0, "agreement": 0}
    for _ in range(200):
        members, _, difference = repeated(
            [rng.normal() + rng.normal(size=3) for _ in range(60)],
            [rng.normal() + rng.normal(size=3) for _ in range(60)],
            rng=rng, draws=300,
        )  # fmt: skip
        hits["size"] += difference.size.low <= 0 <= difference.size.high
        hits["agreement"] += members.agreement.low <= 0.5 <= members.agreement.high
    assert all(178 <= n <= 199 for n in hits.values()), hits


def test_clusters_are_drawn_whole_and_make_intervals_wider() -> None:
    rng = np.random.default_rng(2)
    rows = [np.full(3, value) + rng.normal(scale=0.1, size=3) for value in rng.normal(size=20)]
    copies = [row for row in rows for _ in range(5)]
    labels = [i // 5 for i in range(100)]
    alone = repeated(copies, copies, rng=np.random.default_rng(3))[0].size
    whole = repeated(copies, copies, rng=np.random.default_rng(3), clusters=(labels, labels))[
        0
    ].size
    assert whole.value == alone.value
    assert whole.high - whole.low > 1.8 * (alone.high - alone.low)


def test_what_does_not_vary_has_no_agreement_and_few_records_are_refused() -> None:
    rng = np.random.default_rng(4)
    same = [np.ones(3)] * 12
    members, _, difference = repeated(same, drawn(rng, 12, 1, 1), rng=rng, draws=50)
    assert members.agreement is None
    assert difference.agreement is None
    assert members.spread.value == 0
    with pytest.raises(TooFewRecordsError):
        repeated(same[:9], same, rng=rng)
    with pytest.raises(TooFewRecordsError, match="clusters"):
        repeated(same, same, rng=rng, clusters=([0] * 12, None))
    with pytest.raises(ValueError, match="two values or more"):
        repeated([np.ones(1)] * 12, same, rng=rng)
