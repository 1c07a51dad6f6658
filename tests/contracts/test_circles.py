"""The files of the package have an order: none needs itself through others, for types alone either."""

from graphlib import TopologicalSorter

import pytest


def test_no_file_needs_itself_through_others() -> None:
    grimp = pytest.importorskip("grimp", reason="import-linter is not installed")
    graph = grimp.build_graph("unseen", cache_dir=None)
    needs = {file: graph.find_modules_directly_imported_by(file) for file in graph.modules}
    TopologicalSorter(needs).prepare()  # a CycleError names the files
