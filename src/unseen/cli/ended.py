"""How a finished audit is shown, and with which exit code it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unseen.cli.codes import of_results
from unseen.cli.gate import announce
from unseen.cli.output import out, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from unseen.api import Audit
    from unseen.runs.results import Results


def end(
    audit: Audit,
    gate: tuple[str, ...],
    *,
    json_: bool,
    also: Callable[[Results], None] | None = None,
) -> int:
    """Prints the results and where they are, and holds them against the gate, where there is one.

    Args:
        audit: that has ended.
        gate: its limits.
        json_: print results.json instead of the table.
        also: prints more below the table.
    """
    from unseen.report.terminal import show

    if json_:
        print(audit.results.model_dump_json(indent=1))
    else:
        show(audit.results, out())
        if also is not None:
            also(audit.results)
    say(f"report   {audit.folder / 'report.html'}")
    say(f"run      {audit.folder}")
    if gate:
        return announce(audit.gate(gate), quiet=json_)
    return of_results(audit.results)
