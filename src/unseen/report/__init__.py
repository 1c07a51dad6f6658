"""A run folder, made readable."""
