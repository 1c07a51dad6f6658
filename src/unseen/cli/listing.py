"""`unseen ls`."""

from __future__ import annotations

import inspect
import json
from typing import Annotated

from cyclopts import App, Parameter

from unseen.cli.output import out, show_error
from unseen.errors import visible

app = App(name="ls", help="List what there is.")


@app.command
def attacks(
    *, explain: bool = False, json_: Annotated[bool, Parameter(name="--json", negative=())] = False
) -> int:
    """List the attacks: what they need and where they come from.

    Args:
        explain: also say what each computes, its fields and its paper.
        json_: as JSON.
    """
    from unseen.attacks import BrokenAttackError, names

    facts: list[dict[str, object]] = []
    broken: list[BrokenAttackError] = []
    for name in names():
        try:
            facts.append(_facts(name))
        except BrokenAttackError as error:
            broken.append(error)
    if json_:
        print(json.dumps(facts, indent=1))
    elif explain:
        for fact in facts:
            _explain(fact)
    else:
        _table(facts)
    for fault in broken:
        show_error(fault)
    return 2 if broken else 0


def _facts(name: str) -> dict[str, object]:
    import dataclasses
    from typing import Any, cast

    from unseen.attacks import find
    from unseen.attacks.base import is_blind, is_fitted

    cls = find(name)
    doc = inspect.getdoc(cls) or ""
    return {
        "name": name,
        "summary": doc.partition("\n")[0],
        "needs": cls.access.word,
        "roles": sorted({signal.of for signal in cls().signals()}),
        "blind": is_blind(cls()),
        "fitted": is_fitted(cls()),
        "fields": {f.name: f.default for f in dataclasses.fields(cast("Any", cls))},
        "paper": cls.paper,
        "doc": doc,
    }


def _table(facts: list[dict[str, object]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("attack", "needs", "what it says of a record"):
        table.add_column(column)
    for fact in facts:
        cells = (fact["name"], _needs(fact), fact["summary"])
        table.add_row(*(Text(visible(str(cell))) for cell in cells))
    out().print(table)


def _needs(fact: dict[str, object]) -> str:
    if fact["blind"]:
        return "nothing"
    roles = fact["roles"]
    others = [role for role in roles if role != "target"] if isinstance(roles, list) else []
    more = [{"shadow": "shadows"}.get(role, role) for role in others]
    return " + ".join([str(fact["needs"]), *more])


def _explain(fact: dict[str, object]) -> None:
    console = out()
    console.print(f"[bold]{fact['name']}[/bold]  needs {_needs(fact)}")
    for line in str(fact["doc"]).splitlines():
        console.print(f"  {visible(line)}", markup=False)
    fields = fact["fields"]
    if isinstance(fields, dict) and fields:
        shown = ", ".join(f"{field}={default}" for field, default in fields.items())
        console.print(f"  fields: {shown}", markup=False)
    console.print(f"  paper: {fact['paper']}\n", markup=False)
