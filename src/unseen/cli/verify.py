"""`unseen verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.codes import DONE, USAGE
from unseen.cli.output import show_error
from unseen.errors import StoreError, visible


def verify(
    run: Path, *, json_: Annotated[bool, Parameter(name="--json", negative=())] = False
) -> int:
    """Is a run folder whole, readable and as the run left it? Exit 0 if so, else 2.

    Args:
        run: the run folder.
        json_: print JSON instead of lines.
    """
    from unseen.api import verify_run

    found = verify_run(run)
    if json_:
        print(found.model_dump_json(indent=1))
    else:
        width = max(len(visible(item.what)) for item in found.items)
        for item in found.items:
            word = "ok" if item.ok else "FAULT"
            print(f"{word:<6} {visible(item.what):<{width}}  {visible(item.detail)}")
    for item in found.items:
        if not item.ok:
            problem = item.detail if item.what in item.detail else f"{item.what} {item.detail}"
            show_error(StoreError(problem, fix=item.fix))
    return DONE if found.ok else USAGE
