"""Trainings as run folders: who is trained on, the training itself, and an audit that continues from one."""
