"""Models: who is asked, and how much they tell."""
