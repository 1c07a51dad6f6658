"""Defences of a prompt: one file each, and the file's name is the defence's name."""
