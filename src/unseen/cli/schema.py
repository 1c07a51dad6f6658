"""`unseen schema`."""

from __future__ import annotations

import json


def schema() -> None:
    """Print the JSON Schema of results.json."""
    from unseen.runs.results import Results

    print(json.dumps(Results.model_json_schema(), indent=1))
