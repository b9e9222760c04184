"""What the cache reports of jobs and pods after notices in any order."""

from hypothesis import given, strategies as st
from support_k8s.jobs import job

from sporax.k8s.api.cache import JobCache, JobKey
from sporax.k8s.resource import names

KEY = JobKey("default", "job")


def job_body(version: int, name: str = "job") -> dict:
    body = job(name)
    body["metadata"] |= {"resourceVersion": str(version), "managedFields": [{"manager": "kubectl"}]}
    return body


def pod_body(version: int, index: int = 0, uid: str = "uid-1", phase: str = "Running", name: str = "job") -> dict:
    labels = names.job_selector(name, "Worker") | {names.LABEL_INDEX: str(index)}
    metadata = {"name": f"{name}-worker-{index}", "namespace": "default", "labels": labels, "uid": uid}
    owners = [{"uid": "uid-of-another"}, {"uid": f"uid-{name}", "controller": True}]
    metadata |= {"resourceVersion": str(version), "ownerReferences": owners}
    return {"metadata": metadata, "status": {"phase": phase, "podIP": "10.0.0.1"}}


def test_jobs_and_their_pods_are_found_by_the_job():
    cache = JobCache()
    cache.put(names.KIND, job_body(3))
    cache.put(names.KIND, job_body(4, "other"))
    cache.put("Pod", pod_body(5))
    cache.put("Pod", pod_body(6, 1))
    cache.put("Pod", pod_body(7, name="other"))
    assert cache.job(KEY)["metadata"]["resourceVersion"] == "3"
    assert "managedFields" not in cache.job(KEY)["metadata"]
    assert [(pod.name, pod.address, pod.owner_uid) for pod in cache.pods(KEY)] == [
        ("job-worker-0", "10.0.0.1", "uid-job"),
        ("job-worker-1", "10.0.0.1", "uid-job"),
    ]


def test_a_late_notice_of_an_earlier_incarnation_removes_nothing():
    cache = JobCache()
    cache.put("Pod", pod_body(5, uid="new"))
    cache.remove("Pod", pod_body(4, uid="old"))
    assert [pod.uid for pod in cache.pods(KEY)] == ["new"]


def test_an_answer_that_comes_after_the_deletion_brings_nothing_back():
    cache = JobCache()
    cache.put(names.KIND, job_body(1))
    cache.put("Pod", pod_body(2, 1))
    cache.remove("Pod", pod_body(4))
    cache.put("Pod", pod_body(3))
    assert [pod.index for pod in cache.pods(KEY)] == [1]


def test_a_job_that_is_not_there_is_forgotten_until_it_is_created_again():
    cache = JobCache()
    cache.put(names.KIND, job_body(3))
    cache.miss_job(KEY)
    cache.put(names.KIND, job_body(3))
    assert cache.job(KEY) is None
    cache.put(names.KIND, job_body(5))
    assert cache.job(KEY) is not None


def test_a_full_list_ends_what_no_watch_reported_the_end_of():
    cache = JobCache()
    for name in ("job", "gone"):
        cache.put(names.KIND, job_body(1, name))
        cache.put("Pod", pod_body(2, name=name))
    cache.put("Pod", pod_body(9, 1))  # created after the list was made
    keys = cache.replace([job_body(1)], [pod_body(5, phase="Failed")], 7)
    assert keys == {KEY, JobKey("default", "gone")}
    assert cache.job(JobKey("default", "gone")) is None
    assert cache.pods(JobKey("default", "gone")) == []
    assert [(pod.index, pod.phase.value) for pod in cache.pods(KEY)] == [(0, "Failed"), (1, "Running")]
    cache.put("Pod", pod_body(2, name="gone"))  # late
    assert cache.pods(JobKey("default", "gone")) == []


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_the_newest_notice_of_a_name_wins_in_any_order(order, deletions):
    cache = JobCache()
    cache.put("Pod", pod_body(1, 7))  # keeps the job's entry alive: tombstones go with the last pod
    for version in order:
        body = pod_body(version, uid=f"uid-{version}")
        (cache.remove if version in deletions else cache.put)("Pod", body)
    expected = [] if 8 in deletions else ["uid-8"]
    assert [pod.uid for pod in cache.pods(KEY) if pod.index == 0] == expected
