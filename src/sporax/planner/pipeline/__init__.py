"""Pipelines without devices: schedules, their check, their simulation, and the choice of stages."""
