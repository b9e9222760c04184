"""The operator's own figures, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter as CounterMetric, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource.job_status import Status

# Seconds; most looks take milliseconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_PREFIX = "sporax_operator"
_JOB = ["namespace", "job"]
# The first that is true is a job's state. All are reported: one without jobs is 0, or Prometheus would keep its last number.
_STATES = (facts.SUCCEEDED, facts.FAILED, facts.SUSPENDED, facts.RESTARTING, facts.RUNNING, facts.CREATED)


class _JobFigures(Collector):
    """Figures of each job, out of its status when Prometheus scrapes: a job that is gone leaves none behind."""

    def __init__(self, statuses: Mapping[tuple[str, str], Status]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterable[Metric]:
        """All figures of all jobs."""
        texts = {
            "job_restarts": "Pods and containers of a job that were started again",
            "job_failures": "Those of them that had failed",
            "job_epoch": "Epoch, as rank 0 says",
            "job_step": "Steps that rank 0 has made since its process started to train",
            "job_loss": "Loss of the last step, as rank 0 says",
            "job_samples_per_second": "Samples of rank 0 per second",
        }
        families = {name: GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=_JOB) for name, text in texts.items()}
        pods = GaugeMetricFamily(f"{_PREFIX}_job_ready_pods", "Pods that are ready, by role", labels=[*_JOB, "role"])
        # Copied: jobs come and go while another thread reads.
        statuses = list(self._statuses.items())
        jobs = GaugeMetricFamily(f"{_PREFIX}_jobs", "Jobs, by state", labels=["state"])
        counts = Counter(_state(status) for _, status in statuses)
        for state in _STATES:
            jobs.add_metric([state], counts[state])
        for key, status in statuses:
            for name, value in _figures(status).items():
                families[name].add_metric(key, value)
            for role, found in status.replica_statuses.items():
                pods.add_metric([*key, role], found.ready)
        return [*families.values(), pods, jobs]


def _state(status: Status) -> str:
    """The word for a job's state."""
    return next(kind for kind in _STATES if kind == facts.CREATED or status.is_true(kind))


def _figures(status: Status) -> dict[str, float]:
    """Figures of one job; those that are not known are left out."""
    figures = {"job_restarts": float(status.restarts), "job_failures": float(status.failures)}
    progress = status.progress
    if progress is not None:
        figures |= {"job_step": float(progress.step)}
        figures |= {"job_epoch": float(progress.epoch)} if progress.epoch else {}
        for name, text in (("job_loss", progress.loss), ("job_samples_per_second", progress.samples_per_second)):
            with suppress(ValueError):  # an image of somebody else may send any text
                figures |= {name: float(text)} if text else {}
    return figures


class Metrics:
    """Figures of one operator, in a registry of its own.

    Attributes:
        reconcile_seconds, errors, actions: of looks at jobs: how long each took, those that failed, and what was done by kind.
        statuses: of each job.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            f"{_PREFIX}_reconcile_seconds", "Time of one look at a job", registry=self.registry, buckets=_SECONDS
        )
        self.errors = CounterMetric(
            f"{_PREFIX}_reconcile_errors", "Looks that failed and are tried again", registry=self.registry
        )
        self.actions = CounterMetric(f"{_PREFIX}_actions", "What was done, by kind", ["action"], registry=self.registry)
        self.statuses: dict[tuple[str, str], Status] = {}
        self.registry.register(_JobFigures(self.statuses))
