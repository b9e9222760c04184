"""Variables and frames, constants of a trace, checks of values."""
