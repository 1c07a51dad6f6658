"""Records in: reading, templates, duplicates, splits."""
