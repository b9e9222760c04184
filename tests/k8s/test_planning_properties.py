"""Whatever happens to pods, a job converges, never has more pods than requested, and planning twice changes nothing."""

from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from support_k8s.jobs import job
from support_k8s.simulation import Simulation

from sporax.k8s.decide.actions import Report
from sporax.k8s.decide.observed import PodPhase, ReportedMembership

POLICIES = ("Always", "OnFailure", "Never", "ExitCode")

happenings = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 7), st.sampled_from([0, 1, 3, 130, 137, None])),
    st.tuples(st.just("vanish"), st.integers(0, 7), st.none()),
    st.tuples(st.just("restart"), st.integers(0, 7), st.none()),
    st.tuples(st.just("unready"), st.integers(0, 7), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 20, 400]), st.none()),
    st.tuples(st.just("workers"), st.integers(0, 5), st.none()),
    st.tuples(st.just("servers"), st.integers(1, 4), st.none()),
    st.tuples(st.just("suspend"), st.booleans(), st.none()),
    st.tuples(st.just("look"), st.integers(1, 3), st.none()),
    st.tuples(st.just("forget"), st.none(), st.none()),
)


@st.composite
def jobs(draw):
    body = job(workers=draw(st.integers(1, 3)), servers=draw(st.integers(0, 2)))
    body["spec"] |= {
        "enableDynamicWorker": draw(st.booleans()),
        "enableDynamicServer": draw(st.booleans()),
        "successPolicy": draw(st.sampled_from(["", "AllWorkers"])),
        "runPolicy": {"cleanPodPolicy": draw(st.sampled_from(["All", "Running", "None"]))},
    }
    limit = draw(st.sampled_from([None, 0, 3]))
    if limit is not None:
        body["spec"]["runPolicy"]["backoffLimit"] = limit
    body["spec"]["runPolicy"]["maxRestarts"] = draw(st.sampled_from([0, 0, 2]))
    for part in body["spec"]["msReplicaSpecs"].values():
        part["restartPolicy"] = draw(st.sampled_from(POLICIES))
    return body


def happen(simulation: Simulation, what: str, number, detail) -> None:
    """Let one thing happen; what cannot happen now does not."""
    names = simulation.names()
    name = names[number % len(names)] if names and isinstance(number, int) else None
    match what:
        case "end" if name and simulation.pods[name].phase is PodPhase.RUNNING:
            simulation.end(name, detail)
        case "vanish" if name:
            del simulation.pods[name]
        case "restart" if name:
            simulation.pods[name] = replace(simulation.pods[name], restarts=simulation.pods[name].restarts + 1)
        case "unready" if name:
            simulation.pods[name] = replace(simulation.pods[name], is_ready=False)
        case "wait":
            simulation.wait(number)
        case "workers" if number or simulation.body["spec"]["enableDynamicWorker"]:
            simulation.scale("Worker", number)
        case "servers" if "PS" in simulation.body["spec"]["msReplicaSpecs"]:
            simulation.scale("PS", number)
        case "suspend":
            simulation.spec(runPolicy=simulation.body["spec"]["runPolicy"] | {"suspend": number})
        case "look":
            for _ in range(number):
                simulation.step()
            simulation.advance()
        case "forget":  # the operator dies between storing the status and acting
            simulation.status = simulation.plan().status


def leave(simulation: Simulation) -> None:
    """The job's scheduler aims at the sizes it was sent: servers beyond are drained, workers beyond end."""
    sizes = simulation.status.sizes
    simulation.extras["membership"] = ReportedMembership(
        True, sizes.get("Worker", 0), sizes.get("PS", 0), frozenset(simulation.names("PS"))
    )
    for name, pod in list(simulation.pods.items()):
        if pod.role.value == "Worker" and pod.index >= sizes.get("Worker", 0) and pod.phase is PodPhase.RUNNING:
            simulation.end(name)


def recover(simulation: Simulation) -> None:
    """Nothing bad happens any more: what runs is ready, all time passes, servers can always leave."""
    if simulation.body["spec"]["runPolicy"].get("suspend"):
        simulation.spec(runPolicy=simulation.body["spec"]["runPolicy"] | {"suspend": False})
    for _ in range(40):
        simulation.pods = {
            name: replace(pod, is_ready=pod.phase is PodPhase.RUNNING) for name, pod in simulation.pods.items()
        }
        leave(simulation)
        simulation.step()
        simulation.advance()
        simulation.wait(400)


@settings(max_examples=300)
@given(body=jobs(), story=st.lists(happenings, max_size=25))
def test_every_story_ends_in_a_state_that_requests_nothing_more(body, story):
    simulation = Simulation(body)
    allowed = {role: part["replicas"] for role, part in body["spec"]["msReplicaSpecs"].items()}
    for what, number, detail in story:
        happen(simulation, what, number, detail)
        for role, part in body["spec"]["msReplicaSpecs"].items():
            allowed[role] = max(allowed[role], part["replicas"])
    recover(simulation)
    result = simulation.plan()
    assert not [action for action in result.actions if not isinstance(action, Report)]
    assert result.status == simulation.status
    for role, most in simulation.largest.items():
        assert most <= allowed[role]
    if not simulation.status.is_finished:
        expected = [name for role in ("Scheduler", "PS", "Worker") for name in wanted_names(simulation, role)]
        records = simulation.status.pods
        assert simulation.names() == sorted(n for n in expected if n in simulation.pods)
        assert all(n in simulation.pods or records[n].result for n in expected)


def wanted_names(simulation: Simulation, role: str) -> list[str]:
    return [f"job-{role.lower()}-{index}" for index in range(simulation.status.sizes.get(role, 0))]


@settings(max_examples=200)
@given(body=jobs(), story=st.lists(happenings, max_size=15))
def test_a_plan_that_is_carried_out_twice_counts_nothing_twice(body, story):
    simulation = Simulation(body)
    for what, number, detail in story:
        happen(simulation, what, number, detail)
        first = simulation.plan()
        simulation.status = first.status
        second = simulation.plan()
        assert (second.status.restarts, second.status.failures) == (first.status.restarts, first.status.failures)
        assert second.status.conditions == first.status.conditions
