"""The in-context game: who is in the prompt, how the prompt is written, and what an answer says."""
