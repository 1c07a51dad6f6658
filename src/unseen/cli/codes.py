"""Exit codes: what a script can tell from how a command ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unseen.runs.results import Results

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
GATE_FAILED: Final = 10
INCONCLUSIVE: Final = 11
INTERRUPTED: Final = 130
TERMINATED: Final = 143


def of_results(results: Results) -> int:
    """Done, or inconclusive where the evidence is invalid: then nothing was found out."""
    invalid = results.validity is not None and results.validity.verdict == "invalid"
    return INCONCLUSIVE if invalid else DONE
