"""Kubernetes: the `MSJob` custom resource, the operator that runs it, and the commands of its user.

The story in reading order: `resource.spec` reads what a user wrote, `decide.observed` what the cluster says of a job's pods,
`resource.job_status` what is remembered between two looks. `decide.job_planning` decides, without any I/O, what to do next.
`api.children` writes the manifests of what is created, `api.cluster` talks to the API server, `reconciler` brings these
together for one job, and `operator` wakes it up through kopf. `resource.schema` and `api.manifests` generate what is installed;
`k8s_command` is `sporax k8s`, and `submitted_job` the same for programs.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.k8s.submitted_job import JobSnapshot, SubmittedJob, submit

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
