"""Parse, call, print: one command a file."""
