"""Studies: one audit or training repeated at several points."""
