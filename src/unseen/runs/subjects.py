"""The judged records and what they were given as scores, also as a run folder keeps both: in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.data.duplicates import inseparable, normalised
from unseen.data.features import features
from unseen.errors import StoreError
from unseen.runs.results import (
    AttackResult,
)
from unseen.signals.base import CONTROL, REFERENCE, TARGET
from unseen.types import BoolArray, FloatArray, Scores

if TYPE_CHECKING:
    import pyarrow as pa

    from unseen.data.records import Records

FIXED = "fixed"
"""Not a role of a model: scores of the target by what was learned before it was defended."""


@dataclass(frozen=True)
class Scored:
    """Scores by attack, of the target and of the models that are seen as target, as controls.

    Attributes:
        target: of the target.
        control: of the reference.
        control_model: of the control model.
        fixed: of the target behind a defence, by attacks that have learned from it without.
    """

    target: Mapping[str, Scores] = field(default_factory=dict)
    control: Mapping[str, Scores] = field(default_factory=dict)
    control_model: Mapping[str, Scores] = field(default_factory=dict)
    fixed: Mapping[str, Scores] = field(default_factory=dict)

    def of(self, row: AttackResult) -> Mapping[str, Scores]:
        """The scores by attack of the model that a row is of."""
        if row.kind != "control":
            return self.target
        return self.control_model if row.model == CONTROL else self.control


BOTH_SIDES = "on_both_sides"
"""Column of a table of records: whether one text of the run is judged as a member and as a non-member."""


@dataclass(frozen=True)
class Subjects:
    """The judged records without their text.

    Attributes:
        ids: n ids.
        member: (n,) membership.
        clusters: a number a record, equal for records that are resampled together and never
            split: of one cluster, or of one text. None where every record stands alone.
        groups: column -> a value a record.
        texts: the text of each record, or None; kept only where it is to be revealed.
        lengths: scored tokens of each record, or None.
        features: name -> (n,) numbers about the texts, to compare exposed records by.
        on_both_sides: whether one text is judged as a member and as a non-member, as in prompts with it
            and without: what the two have in common is then no part of the error.
    """

    ids: tuple[str, ...]
    member: BoolArray
    clusters: tuple[int | str | None, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    texts: tuple[str, ...] | None = None
    lengths: tuple[int, ...] | None = None
    features: Mapping[str, FloatArray] = field(default_factory=dict)
    on_both_sides: bool = False

    @classmethod
    def from_records(
        cls, records: Records, lengths: Mapping[str, int] | None, *, reveal: bool
    ) -> Subjects:
        """Ids, membership, clusters and groups of records; their text only to reveal it."""
        rows = records.records
        together = inseparable(rows)
        number = {at: n for n, group in enumerate(together) for at in group}
        # Numbers, not names: authors and users are nobody's business but the data's.
        clusters = (
            None if len(together) == len(rows) else tuple(number[at] for at in range(len(rows)))
        )
        names = tuple(rows[0].slices) if rows else ()
        groups = {name: tuple(row.slices[name] for row in rows) for name in names}
        texts = tuple(row.text for row in rows) if reveal else None
        return cls(
            records.ids,
            records.membership.member,
            clusters,
            groups,
            texts,
            None if lengths is None else tuple(lengths[id_] for id_ in records.ids),
            features(rows, records.membership.member.tolist()),
            on_both_sides=bool(
                {normalised(row.text) for row in records.members}
                & {normalised(row.text) for row in records.nonmembers}
            ),
        )

    @classmethod
    def from_table(cls, table: pa.Table) -> tuple[Subjects, Scored]:
        """The records of a finished run, and the scores that they were given.

        Raises:
            StoreError: where the table is not one that a run has written.
        """
        columns = table.to_pydict()
        absent = {"id", "member"} - set(columns)
        if absent:
            raise StoreError(
                f"records.parquet has no column {' or '.join(sorted(absent))}",
                fix="run the audit again",
            )
        ids = tuple(columns["id"])
        groups = {
            name.removeprefix("slice."): tuple(values)
            for name, values in columns.items()
            if name.startswith("slice.")
        }
        optional = {
            ours: tuple(columns[name])
            for ours, name in (("clusters", "cluster"), ("texts", "text"), ("lengths", "n_tokens"))
            if name in columns
        }
        member = np.array(columns["member"], dtype=bool)
        about = {
            name.removeprefix("feature."): np.array(values, dtype=np.float64)
            for name, values in columns.items()
            if name.startswith("feature.")
        }
        both = any(columns.get(BOTH_SIDES, ()))
        subjects = cls(ids, member, groups=groups, features=about, on_both_sides=both, **optional)
        return subjects, Scored(
            *(_scores_in(columns, role) for role in (TARGET, REFERENCE, CONTROL, FIXED))
        )


_SCORE_COLUMNS = {
    TARGET: ("score.", "unscored."),
    REFERENCE: ("control.", "control_unscored."),
    CONTROL: ("control_model.", "control_model_unscored."),
    FIXED: ("fixed.", "fixed_unscored."),
}


def score_columns(
    ids: tuple[str, ...], role: str, name: str, scores: Scores
) -> dict[str, list[Any]]:
    """Two columns: what an attack says of each record, and why it says nothing."""
    by_id = dict(zip(scores.ids, scores.values.tolist(), strict=True))
    kind, reason = _SCORE_COLUMNS[role]
    return {
        f"{kind}{name}": [by_id.get(id_) for id_ in ids],
        f"{reason}{name}": [scores.unscored.get(id_) for id_ in ids],
    }


def _scores_in(columns: Mapping[str, list[Any]], role: str) -> dict[str, Scores]:
    """Scores by attack, as `score_columns` wrote them."""
    kind, reason = _SCORE_COLUMNS[role]
    found: dict[str, Scores] = {}
    for column, values in columns.items():
        if not column.startswith(kind):
            continue
        name = column.removeprefix(kind)
        reasons = columns.get(f"{reason}{name}", [None] * len(values))
        rows = list(zip(columns["id"], values, reasons, strict=True))
        kept = [(id_, value) for id_, value, _ in rows if value is not None]
        found[name] = Scores(
            tuple(id_ for id_, _ in kept),
            np.array([value for _, value in kept], dtype=np.float64),
            {id_: why for id_, _, why in rows if why is not None},
        )
    return found
