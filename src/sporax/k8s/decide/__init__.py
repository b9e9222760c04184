"""From what is observed of a job to the next actions. Pure functions, no input or output."""
