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
INCOMPLETE: Final = 12
INTERRUPTED: Final = 130
TERMINATED: Final = 143


def of_results(results: Results) -> int:
    """Done, or inconclusive: the evidence is invalid, or there is too little of it for a finding."""
    finds = results.run.scenario in ("finetune", "prompt", "scores")
    return INCONCLUSIVE if results.invalid or (finds and results.headline is None) else DONE
