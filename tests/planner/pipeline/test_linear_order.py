"""No valid schedule deadlocks: processes that meet for every transfer, one at a time, always get to the end."""

from hypothesis import given, settings, strategies as st

from sporax.ir.pipeline_schedule import PipelineSchedule, Task, TaskKind
from sporax.planner.pipeline.generators import generate, linear_order
from sporax.planner.pipeline.schedule_check import check_schedule

F, B, I, W = (TaskKind(letter) for letter in "FBIW")


def needs(route, place, micro, kind, halves):
    """What a task waits for."""
    back = I if halves[place] else B
    task = Task(*route[place], micro, kind)
    if kind is F:
        return task, [Task(*route[place - 1], micro, F)] if place else []
    if kind is W:
        return task, [Task(*route[place], micro, I)]
    sources = [Task(*route[place], micro, F)]
    if place + 1 < len(route):
        sources.append(Task(*route[place + 1], micro, I if halves[place + 1] else B))
    return Task(*route[place], micro, back), sources


@st.composite
def valid_schedules(draw):
    """Tasks drawn one after another from those that could start: every valid schedule can come out."""
    stages, chunks, micro = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    route = tuple((stage, chunk) for chunk in range(chunks) for stage in range(stages))
    halves = [draw(st.booleans()) for _ in route]
    left = {}
    for place in range(len(route)):
        for number in range(micro):
            for kind in (F, I, W) if halves[place] else (F, B):
                task, sources = needs(route, place, number, kind, halves)
                left[task] = sources
    lists = [[] for _ in range(stages)]
    while left:
        ready = [task for task, sources in left.items() if not any(source in left for source in sources)]
        task = draw(st.sampled_from(ready))
        del left[task]
        lists[task.stage].append(task)
    return PipelineSchedule.from_text("\n".join(" ".join(task.text for task in tasks) for tasks in lists), "random")


def run_by_processes(schedule, num_processes):
    """Every process goes through its own part of the list; a transfer takes place when both ends have come to it."""
    events = linear_order(schedule)
    readers = {task: [] for task in schedule}
    for task in schedule:
        for source in schedule.waits_for(task):
            if source.stage % num_processes != task.stage % num_processes:
                readers[source].append(task)
    programs = [[] for _ in range(num_processes)]
    for task, starts in events:
        own = task.stage % num_processes
        if starts:
            programs[own].append(task)
            continue
        for target in readers[task]:
            for process in (own, target.stage % num_processes):
                programs[process].append((task, target))
    done, places = set(), [0] * num_processes

    def next_of(process):
        return programs[process][places[process]] if places[process] < len(programs[process]) else None

    while any(next_of(process) is not None for process in range(num_processes)):
        moved = False
        for process in range(num_processes):
            what = next_of(process)
            if isinstance(what, Task):
                assert all(source in done for source in schedule.waits_for(what)), (what, schedule)
                done.add(what)
            elif what is None or not all(next_of(end.stage % num_processes) == what for end in what):
                continue
            for item in {process} if isinstance(what, Task) else {end.stage % num_processes for end in what}:
                places[item] += 1
            moved = True
        assert moved, f"deadlock: {[next_of(process) for process in range(num_processes)]}"
    return done


@settings(max_examples=60, deadline=None)
@given(valid_schedules(), st.integers(1, 4))
def test_random_valid_schedules_get_to_the_end(schedule, num_processes):
    check_schedule(schedule)
    assert run_by_processes(schedule, min(num_processes, schedule.num_stages)) == set(schedule)


def test_generated_schedules_get_to_the_end():
    for name, chunks in [
        ("gpipe", 1),
        ("gpipe", 2),
        ("1f1b", 1),
        ("1f1b", 2),
        ("zero_bubble_h1", 1),
        ("zero_bubble_v", 2),
    ]:
        schedule = generate(name, 4, 8, chunks)
        assert run_by_processes(schedule, 4) == {task for task in schedule if task.micro >= 0}


def test_a_process_has_started_all_it_can_before_it_waits():
    events = linear_order(generate("1f1b", 2, 4))
    # Stage 0 starts F2 before it waits for what stage 1 sends back of micro batch 1.
    assert events.index((Task(0, 0, 2, F), True)) < events.index((Task(1, 0, 1, B), False))
