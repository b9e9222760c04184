"""What is checked in under deploy/ and what the generated schema says."""

from pathlib import Path

import pytest
import yaml
from support_k8s.jobs import job

from sporax.k8s.api import manifests
from sporax.k8s.resource.schema import custom_resource_definition
from sporax.k8s.resource.spec import InvalidSpecError, read_job

ROOT = Path(__file__).parents[3]


def test_the_files_in_deploy_are_the_generated_ones():
    assert {name: (ROOT / "deploy" / name).read_text() for name in manifests.files()} == manifests.files()


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


def fields(name: str, module: str = "sporax.k8s.resource.spec") -> set[str]:
    import importlib

    return set(getattr(importlib.import_module(module), name).__struct_encode_fields__)


def test_rules_in_the_expression_language_are_an_overlay():
    def spec(**options):
        schema = custom_resource_definition(**options)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return schema["properties"]["spec"]

    assert "x-kubernetes-validations" not in spec()
    assert len(spec(with_expressions=True)["x-kubernetes-validations"]) == 2


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
