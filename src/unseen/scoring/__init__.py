"""The engine: which requests run, in which batches, and where the answers are kept."""
