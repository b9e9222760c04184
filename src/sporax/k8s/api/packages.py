"""The same installation as `manifests.files`, for who installs with Helm or Kustomize; from the same objects.

A Helm chart is text with holes. Here the objects are written with words in the holes' places, which then become expressions; only
`.Values`, `.Release.Namespace`, `if`, `else`, `range` and `end` are used, and a test fills them in and compares with the files.
"""

from __future__ import annotations

from sporax._version import __version__
from sporax.k8s.api import manifests
from sporax.k8s.api.manifests import HEAD, IMAGE, OPERATOR
from sporax.k8s.resource.names import Manifest
from sporax.k8s.resource.schema import custom_resource_definition

_NAMESPACE, _SERVED, _IMAGE = "RELEASE-NAMESPACE", "SERVED-NAMESPACE", "OPERATOR-IMAGE"
_HOLES = {_NAMESPACE: "{{ $.Release.Namespace }}", _SERVED: "{{ . }}", _IMAGE: '"{{ $.Values.image }}"'}
_DOCUMENT = "---\n"
_SEVERAL = 2
_KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_COMPONENT = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
_VALUES = f"""\
# The operator's image.
image: {IMAGE}
# Operators; one works, and another takes over when it is gone.
replicas: {_SEVERAL}
# Namespaces that the operator may see and serves; empty: all.
namespaces: []
"""
_ARGUMENTS = """\
        {{- if $.Values.namespaces }}
        - --namespaces
        {{- range $.Values.namespaces }}
        - {{ . }}
        {{- end }}
        {{- end }}
"""


def packages() -> dict[str, str]:
    """A kustomization of the three files, a component that makes two operators of it, and a Helm chart; by path in `deploy/`."""
    return {
        "kustomization.yaml": _written(_KUSTOMIZATION | {"resources": sorted(manifests.files())}),
        **{f"two-operators/{name}": content for name, content in _two_operators().items()},
        **{f"helm/{name}": content for name, content in _chart().items()},
    }


def _two_operators() -> dict[str, str]:
    """What two operators need besides: a Lease, and a Deployment that knows of it."""
    several = manifests.deployment(IMAGE, replicas=_SEVERAL)
    container = several["spec"]["template"]["spec"]["containers"][0]
    patch = {
        "apiVersion": several["apiVersion"],
        "kind": several["kind"],
        "metadata": {key: several["metadata"][key] for key in ("name", "namespace")},
        "spec": {
            "replicas": _SEVERAL,
            "strategy": several["spec"]["strategy"],
            "template": {"spec": {"containers": [{"name": container["name"], "args": container["args"]}]}},
        },
    }
    return {
        "kustomization.yaml": _written(
            _COMPONENT | {"resources": ["lease.yaml"], "patches": [{"path": "operator.yaml"}]}
        ),
        "lease.yaml": manifests.text(manifests.lease_rights()),
        "operator.yaml": _written(patch),
    }


def _chart() -> dict[str, str]:
    """The Helm chart."""
    chart = {
        "apiVersion": "v2",
        "name": OPERATOR,
        "description": "The operator of MSJob: training jobs of MindSpore's roles.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
    }
    rights = [
        _with_holes([manifests.account(_NAMESPACE), *manifests.lease_rights(_NAMESPACE), *manifests.user_roles()]),
        "{{- if $.Values.namespaces }}\n{{- range $.Values.namespaces }}\n",
        _DOCUMENT + _with_holes(manifests.namespaced_rights(_SERVED, _NAMESPACE)),
        "{{- end }}\n{{- else }}\n",
        _DOCUMENT + _with_holes([manifests.cluster_role(), manifests.cluster_binding(_NAMESPACE)]),
        "{{- end }}\n",
    ]
    deployment = _with_holes([manifests.deployment(_IMAGE, replicas=_SEVERAL, namespace=_NAMESPACE)])
    for plain, hole in (
        (f"  replicas: {_SEVERAL}\n", "  replicas: {{ $.Values.replicas }}\n"),
        (f"/{OPERATOR}\n", f"/{OPERATOR}\n{_ARGUMENTS}"),
    ):
        assert deployment.count(plain) == 1, plain
        deployment = deployment.replace(plain, hole)
    operator = deployment + _DOCUMENT + _with_holes([manifests.metrics_service(_NAMESPACE)])
    return {
        "Chart.yaml": _written(chart),
        "values.yaml": HEAD + _VALUES,
        "crds/msjobs.yaml": manifests.text([custom_resource_definition(with_expressions=True)]),
        "templates/rights.yaml": HEAD + "".join(rights),
        "templates/operator.yaml": HEAD + operator,
    }


def _written(content: Manifest) -> str:
    return manifests.text([content])


def _with_holes(objects: list[Manifest]) -> str:
    """Objects as YAML, with expressions of the chart in the places of words."""
    written = manifests.text(objects).removeprefix(HEAD)
    for word, hole in _HOLES.items():
        written = written.replace(word, hole)
    return written
