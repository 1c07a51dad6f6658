"""One audit, from a plan to stored results."""
