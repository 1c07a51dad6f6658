"""`unseen ls`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from cyclopts import App, Parameter

from unseen.cli.output import out, show_error
from unseen.errors import ConfigError, visible

Facts = dict[str, object]

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
    from unseen.attacks import names

    header = ("attack", "on", "needs", "what it says of a record")
    return _listed(names(), _facts, header, _cells, explain=explain, json_=json_)


@app.command
def defenses(
    *, explain: bool = False, json_: Annotated[bool, Parameter(name="--json", negative=())] = False
) -> int:
    """List what the owner of a prompt can do: `unseen audit prompt --defenses NAME` shows what it does.

    Args:
        explain: also say what each changes, its fields and its paper.
        json_: as JSON.
    """
    from unseen.defenses import find, names

    header = ("defence", "what it does")
    return _listed(
        names(),
        lambda name: _about(find(name), name),
        header,
        lambda fact: (fact["name"], fact["summary"]),
        explain=explain,
        json_=json_,
    )


def _listed(
    names: Iterable[str],
    facts_of: Callable[[str], Facts],
    header: tuple[str, ...],
    cells: Callable[[Facts], tuple[object, ...]],
    *,
    explain: bool,
    json_: bool,
) -> int:
    """Lists files of a folder; those that cannot be loaded are named, and stop nothing else."""
    facts: list[Facts] = []
    broken: list[ConfigError] = []
    for name in names:
        try:
            facts.append(facts_of(name))
        except ConfigError as error:
            broken.append(error)
    if json_:
        print(json.dumps(facts, indent=1))
    elif explain:
        for fact in facts:
            _explain(fact)
    else:
        _table(header, map(cells, sorted(facts, key=_on)))
    for fault in broken:
        show_error(fault)
    return 2 if broken else 0


def _about(cls: Any, name: str) -> Facts:
    """What every file of a folder says of itself."""
    import dataclasses

    doc = inspect.getdoc(cls) or ""
    return {
        "name": name,
        "summary": doc.partition("\n")[0],
        "fields": {f.name: f.default for f in dataclasses.fields(cls)},
        "paper": cls.paper,
        "doc": doc,
    }


def _facts(name: str) -> Facts:
    from unseen.attacks import find
    from unseen.attacks.base import is_blind, is_fitted, scenario_of

    cls = find(name)
    return {
        **_about(cls, name),
        "needs": cls.access.word,
        "roles": sorted({signal.of for signal in cls().signals()}),
        "scenario": scenario_of(cls),
        "blind": is_blind(cls()),
        "fitted": is_fitted(cls()),
    }


def _cells(fact: Facts) -> tuple[object, ...]:
    return fact["name"], _on(fact), _needs(fact), fact["summary"]


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in header:
        table.add_column(column)
    for row in rows:
        table.add_row(*(Text(visible(str(cell))) for cell in row))
    out().print(table)


def _on(fact: Facts) -> str:
    """What it is an attack on; baselines belong to all."""
    if fact.get("blind"):
        return "anything"
    return {"prompt": "prompts"}.get(str(fact.get("scenario")), "models")


def _needs(fact: Facts) -> str:
    if fact["blind"]:
        return "nothing"
    roles = fact["roles"]
    others = [role for role in roles if role != "target"] if isinstance(roles, list) else []
    more = [{"shadow": "shadows"}.get(role, role) for role in others]
    return " + ".join([str(fact["needs"]), *more])


def _explain(fact: Facts) -> None:
    console = out()
    needs = f"  on {_on(fact)}, needs {_needs(fact)}" if "needs" in fact else ""
    console.print(f"[bold]{fact['name']}[/bold]{needs}")
    for line in str(fact["doc"]).splitlines():
        console.print(f"  {visible(line)}", markup=False)
    fields = fact["fields"]
    if isinstance(fields, dict) and fields:
        shown = ", ".join(f"{field}={default}" for field, default in fields.items())
        console.print(f"  fields: {shown}", markup=False)
    console.print(f"  paper: {fact['paper']}\n", markup=False)
