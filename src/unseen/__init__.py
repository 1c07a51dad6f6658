"""Measure what a language model gives away about its data.

Everything here is loaded on first use, so that `import unseen` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

_WHERE: dict[str, str] = {
    "Access": "unseen.targets.access",
    "Audit": "unseen.api",
    "CanaryAudit": "unseen.runs.config",
    "CanaryKey": "unseen.data.canaries",
    "Estimate": "unseen.types",
    "FakeTarget": "unseen.targets.fake",
    "FinetuneAudit": "unseen.runs.config",
    "HFTarget": "unseen.targets.huggingface",
    "LimitedTarget": "unseen.targets.limited",
    "Membership": "unseen.types",
    "OpenAITarget": "unseen.targets.openai_compatible",
    "PromptAudit": "unseen.runs.prompt.config",
    "PromptGame": "unseen.runs.prompt.game",
    "Record": "unseen.types",
    "Records": "unseen.data.records",
    "Scores": "unseen.types",
    "TrainRun": "unseen.runs.training.config",
    "Trained": "unseen.api",
    "Turn": "unseen.types",
    "UnseenError": "unseen.errors",
    "audit_finetune": "unseen.api",
    "audit_prompt": "unseen.api",
    "canary_audit": "unseen.api",
    "canary_bound": "unseen.api",
    "canary_make": "unseen.api",
    "compare_runs": "unseen.api",
    "check_data": "unseen.api",
    "collect": "unseen.api",
    "doctor": "unseen.api",
    "evaluate": "unseen.api",
    "read_key": "unseen.api",
    "gate_run": "unseen.api",
    "report_run": "unseen.api",
    "plan": "unseen.api",
    "run_demo": "unseen.api",
    "run_prompt_demo": "unseen.api",
    "score_run": "unseen.api",
    "study": "unseen.api",
    "train": "unseen.api",
    "train_shadows": "unseen.api",
    "verify_run": "unseen.api",
}

_PACKAGES = ("attacks",)
"""Reached by their name: `unseen.attacks.GradNorm()`."""

__all__ = ["__version__", *_WHERE, *_PACKAGES]  # noqa: PLE0604 (a list of names, all the same)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"unseen.{name}")
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    msg = f"module 'unseen' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
