"""Make a target, a reference or a control model."""
