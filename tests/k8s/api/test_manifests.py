"""What is checked in under deploy/ and what the generated schema says."""

import json
from pathlib import Path

import pytest
import yaml
from support_k8s.chart import CHART, helm, needs_helm, objects_in, rendered
from support_k8s.jobs import job

from sporax.k8s.api import manifests
from sporax.k8s.api.packages import packages
from sporax.k8s.resource.descriptions import DESCRIPTIONS
from sporax.k8s.resource.schema import custom_resource_definition
from sporax.k8s.resource.spec import InvalidSpecError, read_job

ROOT = Path(__file__).parents[3]


def test_the_files_in_deploy_are_the_generated_ones():
    assert {name: (ROOT / "deploy" / name).read_text() for name in manifests.files()} == manifests.files()


def test_packages_in_deploy_are_the_generated_ones():
    assert {name: (ROOT / "deploy" / name).read_text() for name in packages()} == packages()


def objects(text: str, *others: str):
    """Objects by kind, namespace and name."""
    bodies = objects_in(text, *others)
    return {(body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"]): body for body in bodies}


@needs_helm
def test_helm_finds_nothing_wrong_with_the_chart():
    assert "0 chart(s) failed" in helm("lint", str(CHART), "--strict")
    assert yaml.safe_load((CHART / "values.yaml").read_text()) == {
        "image": manifests.IMAGE,
        "replicas": 2,
        "namespaces": [],
    }


@needs_helm
@pytest.mark.parametrize("namespaces", [[], ["team-a", "team-b"]])
def test_the_chart_installs_what_the_files_do(namespaces):
    values = {"image": "registry/op:3", "replicas": 3, "namespaces": namespaces}
    flags = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    installed = objects(rendered(manifests.NAMESPACE, *flags))
    expected = objects(*manifests.files("registry/op:3", replicas=3, namespaces=namespaces).values())
    del expected["Namespace", None, manifests.NAMESPACE]  # Helm makes it, where it is set to
    assert installed == expected


@needs_helm
def test_the_chart_follows_its_release_into_another_namespace():
    installed = rendered("elsewhere")
    assert manifests.NAMESPACE not in installed
    assert "namespace: elsewhere" in installed


def test_the_component_of_two_operators_makes_of_the_files_those_with_a_lease():
    parts = packages()
    assert yaml.safe_load(parts["kustomization.yaml"])["resources"] == sorted(manifests.files())
    overlay = yaml.safe_load(parts["two-operators/kustomization.yaml"])
    assert (overlay["kind"], overlay["resources"]) == ("Component", ["lease.yaml"])
    installed = objects(*manifests.files().values(), parts["two-operators/lease.yaml"])
    patch = yaml.safe_load(parts["two-operators/" + overlay["patches"][0]["path"]])
    patched = installed["Deployment", manifests.NAMESPACE, manifests.OPERATOR]["spec"]
    (changes,) = patch["spec"].pop("template")["spec"]["containers"]
    patched |= patch["spec"]
    assert changes.pop("name") == patched["template"]["spec"]["containers"][0]["name"]
    patched["template"]["spec"]["containers"][0] |= changes
    assert installed == objects(*manifests.files(replicas=2).values())


def test_an_operator_of_some_namespaces_gets_no_right_in_others():
    installed = objects(*manifests.files(namespaces=["team"]).values())
    roles = {kind_and_place: body["rules"] for kind_and_place, body in installed.items() if kind_and_place[0] == "Role"}
    assert roles == {("Role", "team", manifests.OPERATOR): manifests.rules()}
    assert {name for kind, _, name in installed if kind == "ClusterRole"} == {"msjob-editor", "msjob-viewer"}
    assert not [kind for kind, _, _ in installed if kind == "ClusterRoleBinding"]
    arguments = installed["Deployment", manifests.NAMESPACE, manifests.OPERATOR]["spec"]["template"]["spec"]
    assert arguments["containers"][0]["args"] == ["k8s", "operator", "--namespaces", "team"]


def test_the_operator_is_never_doubled_and_has_no_rights_in_its_container():
    spec = manifests.deployment("image")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_the_schema_knows_every_field_that_is_read():
    properties = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert set(properties["spec"]["properties"]) == fields("JobSpec")
    assert set(properties["spec"]["properties"]["runPolicy"]["properties"]) == fields("RunPolicy")
    roles = properties["spec"]["properties"]["msReplicaSpecs"]["additionalProperties"]
    assert set(roles["properties"]) == fields("ReplicaSpec")
    assert set(properties["status"]["properties"]) == fields("Status", "sporax.k8s.resource.job_status")
    records = properties["status"]["properties"]["pods"]["additionalProperties"]
    assert set(records["properties"]) == fields("PodRecord", "sporax.k8s.resource.job_status")


def test_every_field_is_described_for_kubectl_explain_and_no_other():
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # An API server takes no definition that describes what is Kubernetes' own.
    assert schema["properties"].pop("metadata") == {"type": "object"}
    assert dict(fields_of(schema)) == DESCRIPTIONS


def fields_of(schema, path: str = ""):
    """Paths and descriptions of the fields of a schema."""
    if path and not path.endswith("[]"):
        yield path, schema["description"]
    for name, part in schema.get("properties", {}).items():
        yield from fields_of(part, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from fields_of(schema["items"], f"{path}[]")
    more = schema.get("additionalProperties", {})
    if "type" in more:
        yield from fields_of(more, f"{path}.*")


def test_conditions_are_a_list_by_type_with_the_edition_that_they_are_about():
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    conditions = schema["properties"]["status"]["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert {"type", "status", "observedGeneration", "reason", "message", "lastTransitionTime"} <= set(
        conditions["items"]["properties"]
    )


def fields(name: str, module: str = "sporax.k8s.resource.spec") -> set[str]:
    import importlib

    return set(getattr(importlib.import_module(module), name).__struct_encode_fields__)


def test_rules_in_the_expression_language_are_an_overlay():
    def spec(**options):
        schema = custom_resource_definition(**options)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return schema["properties"]["spec"]

    assert "x-kubernetes-validations" not in spec()
    assert len(spec(with_expressions=True)["x-kubernetes-validations"]) == 12


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "08-kubernetes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_example_is_a_job_that_can_run(path):
    assert read_job(yaml.safe_load(path.read_text())).name.startswith("digits-")


def test_there_are_examples_of_the_four_shapes_of_the_original():
    shapes = set()
    for path in (ROOT / "examples" / "08-kubernetes").glob("*.yaml"):
        roles = yaml.safe_load(path.read_text())["spec"]["msReplicaSpecs"]
        shapes.add(tuple(roles.get(name, {"replicas": 0})["replicas"] for name in ("Scheduler", "PS", "Worker")))
    assert shapes == {(0, 0, 1), (1, 0, 4), (1, 1, 1), (1, 2, 4)}


def test_a_job_in_a_test_can_run():
    assert read_job(job()).name == "job"


def test_the_api_server_keeps_misspelled_fields_so_that_the_operator_can_name_them():
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    roles = schema["properties"]["msReplicaSpecs"]["additionalProperties"]
    for part in (schema, roles, schema["properties"]["runPolicy"], schema["properties"]["securityPolicy"]):
        assert part["x-kubernetes-preserve-unknown-fields"]
    assert "x-kubernetes-preserve-unknown-fields" not in roles["properties"]["template"]
    with pytest.raises(InvalidSpecError, match="spec.runPolicy.backofLimit: there is no such field"):
        read_job(job(runPolicy={"backofLimit": 3}))
