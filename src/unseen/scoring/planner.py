"""Which requests run together: equal ones once, shared prefixes once, and little padding.

Pure: no model, no store. The same set of requests gives the same batches in whatever order it
comes, so that a run that was stopped continues with the batches that it would have had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from unseen.types import Batch, Request

# A prefix is read apart only where it saves more than it costs.
MIN_PREFIX = 16
# Cached prefixes are copied for every row; this bounds their share of a batch's memory.
MAX_PREFIX_SHARE = 8


def plan(requests: Iterable[Request], batch_tokens: int) -> list[Batch]:
    """Cuts requests into batches by padded tokens.

    Args:
        requests: in any order, with repetitions.
        batch_tokens: the most tokens, padding included, that a batch of more than one row holds.

    Returns:
        Batches; within each prefix the longest rows come first, so that a batch that does not
        fit into memory shows at once. Every distinct request is in exactly one batch.
    """
    if batch_tokens < 1:
        msg = f"got batch_tokens={batch_tokens}, expected at least 1"
        raise ValueError(msg)
    groups: defaultdict[tuple[int, ...], list[Request]] = defaultdict(list)
    for request in distinct(requests):
        # The last context token stays with the row: it predicts the first continuation token.
        n_shared = min(request.shared, len(request.context) - 1)
        prefix = request.context[:n_shared] if n_shared >= MIN_PREFIX else ()
        groups[prefix].append(request)
    for prefix in [prefix for prefix, rows in groups.items() if prefix and len(rows) == 1]:
        groups[()] += groups.pop(prefix)
    batches: list[Batch] = []
    for prefix in sorted(groups, key=lambda prefix: (-len(prefix), prefix)):
        batches += _cut(prefix, groups[prefix], batch_tokens)
    return batches


def distinct(requests: Iterable[Request]) -> list[Request]:
    """Each request once; of equal ones, that which shares most of its context with others."""
    kept: dict[Request, Request] = {}
    for request in requests:
        if request.shared > kept.setdefault(request, request).shared:
            kept[request] = request
    return list(kept.values())


def _cut(prefix: tuple[int, ...], requests: list[Request], batch_tokens: int) -> list[Batch]:
    rows = sorted(requests, key=lambda row: (-row.length, row.context, row.continuation))
    batches: list[Batch] = []
    start = 0
    while start < len(rows):
        longest = rows[start].length - len(prefix)
        n_rows = max(1, batch_tokens // longest)
        if prefix:
            room = MAX_PREFIX_SHARE * batch_tokens // (len(prefix) + longest)
            n_rows = max(1, min(n_rows, room))
        batches.append(Batch(prefix, tuple(rows[start : start + n_rows])))
        start += n_rows
    return batches
