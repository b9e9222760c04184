"""Kubernetes: the `MSJob` custom resource, the operator that runs it, and the commands of its user.

The story in reading order: `spec` reads what a user wrote, `observed` what the cluster says of a job's pods, `status`
what is remembered between two looks. `planning.plan` decides, without any I/O, what to do next. `children` writes the
manifests of what is created. `cluster` talks to the API server, `reconciler` brings these together for one job, and
`operator` wakes it up through kopf. `schema` and `manifests` generate what is installed; `command` is `sporax k8s`.
"""
