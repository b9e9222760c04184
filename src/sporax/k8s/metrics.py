"""The operator's own figures, for Prometheus."""

from __future__ import annotations

from collections import Counter

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as CounterMetric

# Seconds; most looks take milliseconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_PREFIX = "sporax_operator"


class Metrics:
    """Figures of one operator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reconcile_seconds = Histogram(
            f"{_PREFIX}_reconcile_seconds", "Time of one look at a job", registry=self.registry, buckets=_SECONDS
        )
        self._errors = CounterMetric(
            f"{_PREFIX}_reconcile_errors", "Looks that failed and are tried again", registry=self.registry
        )
        self._actions = CounterMetric(
            f"{_PREFIX}_actions", "What was done, by kind", ["action"], registry=self.registry
        )
        self._jobs = Gauge(f"{_PREFIX}_jobs", "Jobs, by state", ["state"], registry=self.registry)
        self._states: dict[tuple[str, str], str] = {}

    def observe(self, seconds: float) -> None:
        """One look at a job took this long."""
        self._reconcile_seconds.observe(seconds)

    def count_error(self) -> None:
        """One look at a job failed."""
        self._errors.inc()

    def count_action(self, action: str) -> None:
        """One action is carried out."""
        self._actions.labels(action).inc()

    def set_state(self, key: tuple[str, str], state: str) -> None:
        """A job is in this state now."""
        self._states[key] = state
        self._write_states(state)

    def forget(self, key: tuple[str, str]) -> None:
        """A job is gone."""
        state = self._states.pop(key, None)
        if state is not None:
            self._write_states(state)

    def _write_states(self, also: str) -> None:
        """Set the gauge of every state; one that no job is in any more is 0."""
        counts = Counter(self._states.values())
        # A state without jobs must be set to 0, or Prometheus would keep its last number.
        for labels in [*counts, also, *(item[0] for item in list(self._jobs._metrics))]:
            self._jobs.labels(labels).set(counts[labels])
