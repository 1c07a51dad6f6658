"""A run as one HTML page: report.html of the run folder.

One file that asks for nothing: styles, script and figures are in it, and its content security policy
forbids every request. It is rendered from the run folder alone, the same bytes each time.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.errors import ConfigError, short, visible
from unseen.report import figures
from unseen.report import language as say
from unseen.report import sections as parts
from unseen.report.summary import number, percent, percent_rate, rate

if TYPE_CHECKING:
    import pyarrow as pa
    from jinja2 import Environment

    from unseen.report.figures import Drawing
    from unseen.runs.folder import RunFolder
    from unseen.runs.results import AttackResult, Number, Results

STATIC_ROWS = 50
"""Rows of records that are there without a script."""

MOST_ROWS, FEWER_ROWS = 10_000, 5_000
MOST_BYTES = 400_000
"""Of the embedded records: what is left of 500 KB beside figures, styles and words."""

_LONGEST_ID = 48
_LONGEST_TEXT = 400
_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Tile:
    """A fact at the top: never a number without its interval."""

    name: str
    value: str
    detail: str
    tone: str = ""


@dataclass(frozen=True)
class RecordTable:
    """Records by falling score.

    Attributes:
        attack: that they are ranked by.
        columns: names of the columns that are shown.
        numeric: columns that are set to the right.
        top: the first rows of members, as text.
        data: all embedded rows as JSON, columns of equal length.
        n_rows: embedded rows.
        n_all: rows that there are.
    """

    attack: str
    columns: tuple[str, ...]
    numeric: frozenset[int]
    top: tuple[tuple[str, ...], ...]
    data: str
    n_rows: int
    n_all: int


@dataclass(frozen=True)
class _Look:
    """How numbers of records are written, here and by the script.

    Attributes:
        digits: decimals of scores.
        least: in place of a population FPR of zero, which so few non-members cannot show.
    """

    digits: int
    least: str


def render(folder: RunFolder, results: Results, *, reveal: bool = False) -> str:
    """The report as one HTML page.

    Args:
        folder: the run folder: run.json and records.parquet are read.
        results: of the run.
        reveal: show the records' text, where the run kept it.

    Raises:
        ConfigError: where text is to be shown and records.parquet has none.
        StoreError: where a file cannot be read.
    """
    table = folder.read_table("records.parquet")
    if reveal and "text" not in table.column_names:
        raise ConfigError(
            f"{folder.path} holds no text of records, so none can be shown",
            fix="run the audit with --reveal to keep their text in the run folder",
        )
    attack = parts.subject(results)
    column = None if attack is None else f"score.{attack.name}"
    drawings = {
        "roc": figures.roc(results),
        "drift": figures.shapes(results),
        "settings": figures.settings(results),
        "defences": figures.tradeoff(results),
    }
    records = None
    # Of invalid evidence a threshold, or an order, would be a finding.
    if attack is not None and column in table.column_names and not results.invalid:
        drawings["histogram"] = _histogram(results, attack, table)
        records = _records(table, attack, reveal=reveal)
    return _page(results, folder.read_json("run.json"), drawings, records)


def templates() -> Environment:
    """The templates of pages; what they are given is escaped, and what is missing is a fault."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("unseen.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["shown"] = shown
    return environment


def source(environment: Environment, name: str) -> str:
    """A file that stands beside the templates, as it is."""
    loader = environment.loader
    return loader.get_source(environment, name)[0].strip() if loader else ""


def _page(
    results: Results,
    about: Mapping[str, Any],
    drawings: Mapping[str, Drawing | None],
    records: RecordTable | None,
) -> str:
    environment = templates()
    names = frozenset(row.name for row in (*results.attacks, *results.control))
    environment.filters["sentence"] = lambda text: say.sentence(text, names)
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.globals["interval"] = interval
    script, style = (source(environment, name) for name in ("table.js", "report.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html.j2").render(
        title=say.TITLES[results.run.scenario],
        results=results,
        outcome=say.outcome(results),
        tiles=tiles(results),
        facts=parts.header_facts(results),
        sections=parts.sections(results, about),
        drawings=drawings,
        records=records,
        status=say.STATUS,
        measured=say.measured,
        script=script,
        script_hash=f"sha256-{digest}",
        style=style,
    )


def shown(text: object, most: int = 300) -> str:
    r"""Text as it can be put into a page: one line, no controls, not endless.

    >>> shown("a\u202eb\n c")
    'a\\u202eb c'
    """
    return visible(short(" ".join(str(text).split()), most))


def tiles(results: Results) -> tuple[Tile, ...]:
    """Four facts; what may not be said is not shown as a number."""
    return (
        _rate_tile(results),
        _auc_tile(results),
        _epsilon_tile(results),
        _evidence_tile(results),
    )


def _rate_tile(results: Results) -> Tile:
    found = say.headline(results)
    if found is None:
        return Tile("Members identified", "not reported", "there is no finding", "muted")
    detail = (
        f"{100 * found.tpr.confidence:g} % interval {percent(found.tpr.ci[0])} to "
        f"{percent(found.tpr.ci[1])}, {found.tpr.n[0]:,} members; "
        f"false alarms {rate(found.realised_fpr)}"
    )
    return Tile(
        f"Members identified at {percent_rate(found.fpr)} FPR", percent(found.tpr.value), detail
    )


def _auc_tile(results: Results) -> Tile:
    blinds = [row for row in results.attacks if row.kind == "blind" and row.auc is not None]
    blind = max(blinds, key=lambda row: row.auc.value if row.auc else 0.0, default=None)
    beside = (
        "no blind baseline"
        if blind is None or blind.auc is None
        else f"without any model (blind): {number(blind.auc)}"
    )
    attack = parts.subject(results)
    if say.headline(results) is None or attack is None or attack.auc is None:
        return Tile("AUC", "not reported", beside, "muted")
    low, high = attack.auc.ci
    detail = (
        f"{100 * attack.auc.confidence:g} % interval {low:.3f} to {high:.3f}, "
        f"{attack.auc.n[0]:,} + {attack.auc.n[1]:,} records; {beside}"
    )
    return Tile(f"AUC of {shown(attack.name, 24)}", f"{attack.auc.value:.3f}", detail)


def _epsilon_tile(results: Results) -> Tile:
    if results.epsilon is None:
        what = "a bound takes records that were put in or left out by recorded coins"
        return Tile("Privacy loss ε", "not measured", what, "muted")
    if results.invalid:
        return Tile("Privacy loss ε", "not reported", "there is no finding", "muted")
    value, what = say.epsilon(results.epsilon, brief=True)
    return Tile("Privacy loss ε", value, what)


def _evidence_tile(results: Results) -> Tile:
    verdict = say.verdict_word(results)
    return Tile("Evidence", verdict, say.tally(results.checks), verdict.replace(" ", "-"))


def interval(estimate: Number | None) -> dict[str, str] | None:
    """An AUC with its interval on a line from 0 to 1: where the marks lie, in hundredths."""
    if estimate is None:
        return None
    low, high = (min(max(end, 0.0), 1.0) for end in estimate.ci)
    return {
        "low": f"{100 * low:.1f}",
        "width": f"{max(100 * (high - low), 0.8):.1f}",
        "value": f"{100 * estimate.value:.1f}",
    }


# --- records ------------------------------------------------------------------------------------


def _histogram(results: Results, attack: AttackResult, table: pa.Table) -> Drawing | None:
    scores = np.array(table[f"score.{attack.name}"].to_pylist(), dtype=np.float64)
    member = np.array(table["member"].to_pylist(), dtype=bool)
    scored = np.isfinite(scores)
    return figures.histogram(results, attack, scores[scored & member], scores[scored & ~member])


def _records(table: pa.Table, attack: AttackResult, *, reveal: bool) -> RecordTable | None:
    wanted = ["id", "member", f"score.{attack.name}", f"population_fpr.{attack.name}"]
    groups = [name for name in table.column_names if name.startswith("slice.")][:_MOST_COLUMNS]
    optional = [name for name in ("n_tokens",) if name in table.column_names]
    text = ["text"] if reveal else []
    if not set(wanted) <= set(table.column_names):
        return None
    rows = table.select([*wanted, *optional, *groups, *text]).to_pylist()
    rows = [row for row in rows if row[wanted[2]] is not None]
    # Equal scores stay in the order of the file.
    rows.sort(key=lambda row: -row[wanted[2]])
    n_others = sum(not row["member"] for row in rows)
    look = _Look(_digits([row[wanted[2]] for row in rows]), _least(n_others))
    names = ("id", "side", "score", "population FPR",
             *("tokens" for _ in optional), *(name.removeprefix("slice.") for name in groups),
             *text)  # fmt: skip
    columns: list[list[Any]] = [
        [shown(row["id"], _LONGEST_ID) for row in rows],
        [int(row["member"]) for row in rows],
        [round(row[wanted[2]], look.digits) for row in rows],
        [float(f"{row[wanted[3]] or 0.0:.3g}") for row in rows],
        *([row[name] for row in rows] for name in optional),
        *([shown(row[name], _LONGEST_ID) for row in rows] for name in groups),
        *([shown(row["text"], _LONGEST_TEXT) for row in rows] for _ in text),
    ]
    numeric = frozenset(range(2, 4 + len(optional)))
    data, n_rows = _embedded(names, columns, numeric, look)
    members = [place for place, row in enumerate(rows) if row["member"]][:STATIC_ROWS]
    return RecordTable(
        attack=attack.name,
        columns=names,
        numeric=numeric,
        top=tuple(_cells(columns, place, look) for place in members),
        data=data,
        n_rows=n_rows,
        n_all=len(rows),
    )


def _digits(scores: Sequence[float]) -> int:
    """Decimals that tell scores of this size apart.

    >>> _digits([-1.5, 2.25]), _digits([1234.5])
    (3, 1)
    """
    largest = max(map(abs, scores), default=1.0)
    return int(np.clip(3 - np.floor(np.log10(max(largest, 1e-9))), 1, 9))


def _least(n: int) -> str:
    """What so many non-members can say of a record that scores above all of them.

    >>> _least(40)
    '< 2.5%'
    """
    return f"< {100 / n:.2g}%" if n else "–"


def _cells(columns: Sequence[Sequence[Any]], place: int, look: _Look) -> tuple[str, ...]:
    """A row as text, as the script writes it too."""
    id_, member, score, fpr, *more = (column[place] for column in columns)
    side = "member" if member else "non-member"
    return (
        id_,
        side,
        f"{score:.{look.digits}f}",
        look.least if not fpr else percent(fpr) if fpr >= 0.001 else f"{100 * fpr:.2g}%",
        *("" if one is None else str(one) for one in more),
    )


def _embedded(
    names: Sequence[str], columns: Sequence[Sequence[Any]], numeric: frozenset[int], look: _Look
) -> tuple[str, int]:
    """The rows that fit, as JSON that can stand in a script element."""
    n = len(columns[0])
    for most in (MOST_ROWS, FEWER_ROWS, FEWER_ROWS // 2, FEWER_ROWS // 4, FEWER_ROWS // 10):
        kept = n if n <= most else min(n, FEWER_ROWS, most)
        packed = [_packed(column[:kept]) for column in columns]
        text = json.dumps(
            {"names": list(names), "numeric": sorted(numeric), "digits": look.digits,
             "least": look.least, "n": kept, "columns": packed},
            separators=(",", ":"), ensure_ascii=False,
        )  # fmt: skip
        for char in "<>&\u2028\u2029":
            text = text.replace(char, f"\\u{ord(char):04x}")
        if len(text.encode()) <= MOST_BYTES:
            break
    return text, kept


def _packed(column: Sequence[Any]) -> dict[str, Any]:
    """A column; where few values occur often, each once, with places in that list."""
    values = list(dict.fromkeys(column))
    if len(values) * 4 > len(column):
        return {"values": list(column)}
    place = {value: at for at, value in enumerate(values)}
    return {"of": values, "at": [place[value] for value in column]}
