"""Numbers from scores and membership: the only place where the two meet. Pure functions."""
