"""Epochs, seeds, Tensors, workers, and saving an iterator in mid-epoch."""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import _iterators as iterators, vision
from sporax.mindspore.dataset._streams import in_order_of

from .conftest import column, rows


def numbers(n=10, **arguments):
    return ds.NumpySlicesDataset(np.arange(n), column_names=["x"], **arguments)


def images():
    rng = np.random.default_rng(0)
    return ds.NumpySlicesDataset({"image": rng.integers(0, 256, (12, 6, 6, 3), np.uint8)})


def test_importing_the_package_needs_neither_jax_nor_grain():
    program = "import sporax.mindspore.dataset, sys; print({'jax', 'grain'} & set(sys.modules))"
    import sporax.mindspore

    if "jax" in subprocess.run([sys.executable, "-c", "import sporax, sys; print(*sys.modules)"], capture_output=True,
                               text=True, check=True).stdout.split():  # fmt: skip
        program = "import sporax.mindspore.dataset, sys; print({'grain'} & set(sys.modules))"
    assert sporax.mindspore.dataset is ds
    actual = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert actual.stdout.strip() == "set()"


def test_an_iterator_lives_over_its_epochs_and_then_refuses():
    iterator = numbers(shuffle=False).batch(4).create_tuple_iterator(num_epochs=2, output_numpy=True)
    assert [[row[0].tolist() for row in iterator] for _ in range(2)] == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 2
    with pytest.raises(RuntimeError, match="beyond the specified number of epochs. All 2 epochs"):
        next(iterator)


def test_dict_iterator_and_chosen_columns():
    data = ds.NumpySlicesDataset({"a": [1], "b": [2]})
    assert next(data.create_dict_iterator(output_numpy=True)) == {"a": 1, "b": 2}
    assert next(data.create_tuple_iterator(columns=["b"], output_numpy=True)) == [2]
    with pytest.raises(RuntimeError, match="does not exist"):
        data.create_tuple_iterator(columns=["c"])


def test_tensors_come_out():
    tensor = pytest.importorskip("sporax.mindspore.common.tensor")
    (value,) = next(iter(numbers(4, shuffle=False).map(ds.transforms.TypeCast(np.int32)).batch(3)))
    assert isinstance(value, tensor.Tensor)
    assert value.asnumpy().tolist() == [0, 1, 2]
    (text,) = next(iter(ds.NumpySlicesDataset(["a"])))
    assert isinstance(text, np.ndarray)


@pytest.mark.parametrize("arguments", [{"num_epochs": "a"}, {"output_numpy": 1}, {"do_copy": 1}])
def test_iterator_argument_types(arguments):
    with pytest.raises(TypeError):
        numbers().create_dict_iterator(**arguments)


def test_iterator_argument_values():
    with pytest.raises(ValueError):
        numbers().create_dict_iterator(num_epochs=-2)
    with pytest.raises(RuntimeError):
        numbers().create_dict_iterator(num_epochs=0)


def test_with_a_seed_iterators_repeat_and_epochs_differ():
    ds.config.set_seed(7)
    data = numbers(20).shuffle(5).batch(4)
    assert rows(data) == rows(data)
    first, second = rows(data, epochs=2)
    assert first != second
    ds.config.set_seed(8)
    assert rows(data) != first


def test_without_a_seed_loops_reshuffle_and_runs_repeat():
    data, twin = numbers(20), numbers(20)
    loops = [column(data) for _ in range(3)]
    assert len({tuple(loop) for loop in loops}) == 3
    assert [column(twin) for _ in range(3)] == loops
    data.reset()
    assert column(data) == loops[0]


def test_repeat_reshuffles_each_pass():
    ds.config.set_seed(1)
    whole = column(numbers(20).repeat(2))
    assert whole[:20] != whole[20:]
    assert sorted(whole[:20]) == sorted(whole[20:])
    assert whole == list(itertools.chain(*column(numbers(20), epochs=2)))


def test_shuffle_moves_rows_no_further_forward_than_its_buffer():
    order = column(numbers(200, shuffle=False).shuffle(10))
    assert sorted(order) == list(range(200))
    assert order != sorted(order)
    assert all(row - place < 10 for place, row in enumerate(order))
    flow = ds.GeneratorDataset(lambda: iter(range(200)), "x").shuffle(10)
    assert sorted(column(flow)) == list(range(200))
    assert all(row - place < 10 for place, row in enumerate(column(flow)))


def test_random_transforms_depend_on_the_row_alone():
    ds.config.set_seed(3)
    steps = [vision.RandomCrop(4), vision.RandomHorizontalFlip()]
    data = images().map(steps, "image")
    reference = rows(data)
    for threads in (1, 3):
        ds.config.set_num_parallel_workers(threads)
        assert rows(data) == reference
        batched = itertools.chain(*(batch[0] for batch in rows(data.batch(5))))
        assert list(batched) == [row[0] for row in reference]
    assert rows(data, epochs=2)[1] != reference


def test_zipped_branches_with_one_seed_stay_aligned():
    ds.config.set_seed(3)
    pairs = rows(ds.zip((numbers(30), numbers(30).rename("x", "y"))))
    assert all(a == b for a, b in pairs)


def generated():
    for i in range(10):
        yield (np.array(i),)


PIPELINES = {
    "table": lambda: numbers(10).map(lambda x: x * 3, "x").batch(3),
    "repeat": lambda: numbers(10).repeat(2).batch(3),
    "flow": lambda: ds.GeneratorDataset(generated, ["x"]).shuffle(4).batch(3),
    "filter": lambda: numbers(10).filter(lambda x: x % 3 > 0, "x"),
    "random": lambda: images().map(vision.RandomCrop(3), "image").batch(5),
}


def continued(iterator, count):
    actual = []
    for _ in range(count):
        try:
            actual.append([value.tolist() for value in next(iterator)])
        except StopIteration:
            actual.append("end of epoch")
    return actual


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(PIPELINES)), st.integers(0, 12))
def test_a_saved_iterator_goes_on_where_it_stood(name, steps):
    data = PIPELINES[name]()
    iterator = data.create_tuple_iterator(output_numpy=True)
    continued(iterator, steps)
    state = json.loads(json.dumps(iterator.get_state()))
    expected = continued(iterator, 6)
    for other in (data.create_tuple_iterator(output_numpy=True), iterator):
        continued(other, 2)
        other.set_state(state)
        assert continued(other, 6) == expected


def test_states_that_do_not_fit_are_refused():
    iterator = numbers().create_dict_iterator()
    with pytest.raises(TypeError, match="keys"):
        iterator.set_state({"epoch": 1})
    other = numbers().rename("x", "y").create_dict_iterator()
    with pytest.raises(ValueError, match="columns"):
        other.set_state(iterator.get_state())


def test_a_released_iterator_refuses():
    iterator = numbers().create_dict_iterator(output_numpy=True)
    next(iterator)
    iterator.release()
    with pytest.raises(AttributeError, match="it was stopped: .* has no attribute '_runtime_context'"):
        next(iterator)


def test_living_iterators_are_listed_and_released_together():
    one, other = (numbers().create_tuple_iterator() for _ in range(2))
    assert [reference() for reference in iterators.ITERATORS_LIST[-2:]] == [one, other]
    count = len(iterators.ITERATORS_LIST)
    del one
    assert len(iterators.ITERATORS_LIST) == count - 1
    iterators._cleanup()
    assert iterators.ITERATORS_LIST == []
    with pytest.raises(AttributeError, match="stopped"):
        next(other)


@pytest.mark.parametrize("step", [0, 2, 5])
def test_the_training_s_iterator_is_set_back_to_a_step(step):
    data = ds.NumpySlicesDataset(list(range(3)), shuffle=True)
    expected = [int(row[0]) for _ in range(2) for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    iterator = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    ds._set_training_dataset(iterator)
    assert ds._get_training_dataset() is iterator
    every = [int(row[0]) for _ in range(2) for row in iterator]
    ds._reset_training_dataset(step, 3)
    rest = [int(row[0]) for _ in range(2 - step // 3) for row in iterator]
    assert rest == every[step:] and sorted(every[:3]) == sorted(expected[:3])
    for wrong, words in ((6, "must be less than dataset_size . num_epochs"), (-1, "must be >= 0")):
        with pytest.raises(RuntimeError, match=f"Cannot reset the pipeline, reset step {words}"):
            ds._reset_training_dataset(wrong, 3)


def test_a_dataset_starts_from_a_source():
    with pytest.raises(TypeError, match="source"):
        ds.Dataset(3)
    assert issubclass(ds.MnistDataset, ds.Dataset)
    assert isinstance(numbers(), ds.SourceDataset)


PROCESSES = """
import os
import numpy as np
import sporax.mindspore.dataset as ds

def tag(x):
    return x, np.array(os.getpid())

def main():
    ds.config.set_seed(5)
    data = ds.NumpySlicesDataset(np.arange(12), "x")
    plain = [row[0].tolist() for row in data.batch(2).create_tuple_iterator(num_epochs=1, output_numpy=True)]
    tagged = data.map(tag, "x", ["x", "pid"], num_parallel_workers=2, python_multiprocessing=True).batch(2)
    iterator = tagged.create_tuple_iterator(num_epochs=2, output_numpy=True)
    read = [[(x.tolist(), pid.tolist()) for x, pid in iterator] for _ in range(2)]
    assert [x for x, _ in read[0]] == plain, (read, plain)
    assert [x for x, _ in read[0]] != [x for x, _ in read[1]]
    workers = {pid for epoch in read for _, pids in epoch for pid in pids}
    assert len(workers) == 2 and os.getpid() not in workers, workers
    iterator.set_state({**iterator.get_state(), "epoch": 0, "row": 4})
    assert next(iterator)[0].tolist() == plain[4]
    iterator.release()

if __name__ == "__main__":
    main()
"""


KILLED = """
import os, signal
import numpy as np
import sporax.mindspore.dataset as ds

def end(x):
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x

def beside(x):
    # The other process misses the usual end, as one does that is just being started.
    if x == 2:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    return end(x)

def main():
    table = ds.NumpySlicesDataset(np.arange(12), "x", shuffle=False)
    for data, function in ((table, end), (table.filter(lambda x: x >= 0), beside)):
        try:
            list(data.map(function, "x", num_parallel_workers=2, python_multiprocessing=True).create_tuple_iterator())
        except RuntimeError as error:
            print(str(error).partition(": it was killed")[0])

if __name__ == "__main__":
    main()
"""


def test_a_worker_process_that_dies_is_named_and_what_to_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=True)
    said = "For 'num_parallel_workers', the worker processes of the data set must stay alive, but one has died"
    assert done.stdout.splitlines() == [f"{said} (exit code -9)", said]


def test_a_future_that_is_never_set_holds_nobody_up():
    # What is submitted while Python ends the pool of a dead process is neither run nor cancelled.
    dead, lost = futures.Future(), futures.Future()
    dead.set_exception(futures.BrokenExecutor("a process has died"))
    with pytest.raises(futures.BrokenExecutor, match="has died"):
        list(in_order_of(iter([0, 1]), [dead, lost].__getitem__, 1))
    assert lost.cancelled()


@pytest.mark.full
def test_processes_give_the_same_rows(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROCESSES)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


SEQUENTIAL_PROCESSES = """
import os
import numpy as np
import sporax.mindspore.dataset as ds

def generated():
    for i in range(12):
        yield (np.array(i),)

def tag(x):
    return x * 2, np.array(os.getpid())

def read(data, epochs=1):
    iterator = data.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    return [[[value.tolist() for value in row] for row in iterator] for _ in range(epochs)]

def refuse(x):
    return {0: 1}[int(x)]

def main():
    two = {"num_parallel_workers": 2, "python_multiprocessing": True}
    for epoch in read(ds.GeneratorDataset(generated, ["x"]).map(tag, "x", ["x", "pid"], **two), epochs=2):
        assert [x for x, _ in epoch] == list(range(0, 24, 2)), epoch
        assert os.getpid() not in {pid for _, pid in epoch}, epoch
    add = lambda values, info: ([value + info.get_epoch_num() for value in values],)
    batches = read(ds.GeneratorDataset(generated, ["x"]).batch(6, per_batch_map=add, **two), epochs=2)
    assert batches == [[[[e + i for i in range(6)]], [[e + i for i in range(6, 12)]]] for e in range(2)], batches
    behind = ds.NumpySlicesDataset(list(range(10)), ["x"], shuffle=False).map(tag, "x", ["x", "pid"], **two)
    (rows,) = read(behind.filter(lambda x: x % 4 == 0, "x"))
    assert [x for x, _ in rows] == [0, 4, 8, 12, 16] and os.getpid() not in {pid for _, pid in rows}, rows
    try:
        read(ds.GeneratorDataset(generated, ["x"]).map(refuse, **two))
    except RuntimeError as error:
        assert "'refuse' failed with KeyError: 1" in str(error), error
    else:
        raise AssertionError("no error")

if __name__ == "__main__":
    main()
"""


@pytest.mark.full
def test_processes_on_sequential_pipelines(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SEQUENTIAL_PROCESSES)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


WITHOUT_GUARD = """
import os
import sys
import numpy as np
import sporax.mindspore.dataset as ds

print("begins")

class Squares:
    def __len__(self):
        return 6

    def __getitem__(self, row):
        return scaled(np.array(row * row)), np.array(os.getpid())

def scaled(value):
    return value * int(sys.argv[1])

two = {"num_parallel_workers": 2, "python_multiprocessing": True}
table = ds.GeneratorDataset(Squares(), ["x", "pid"], shuffle=False, **two)
flow = ds.GeneratorDataset(lambda: iter(range(6)), ["x"]).map(lambda x: (scaled(x * x), os.getpid()), "x", ["x", "pid"], **two)
for data in (table, flow):
    rows = list(data.create_tuple_iterator(num_epochs=1, output_numpy=True))
    assert [int(x) for x, _ in rows] == [0, 3, 12, 27, 48, 75], rows
    assert os.getpid() not in {int(pid) for _, pid in rows}
print("ends")
"""


@pytest.mark.parametrize("command", [[], ["-m", "sporax", "run"]])
def test_processes_of_a_script_without_a_guard(tmp_path, command):
    """MindSpore forks its workers, so scripts that it runs have the guard of Python's `spawn` or not."""
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_GUARD)
    command = [sys.executable, *command, str(script), "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["begins", "ends"]), done.stderr


def test_requested_threads_keep_the_order():
    data = numbers(50, shuffle=False).map(lambda x: x, "x", num_parallel_workers=4)
    assert column(data) == list(range(50))


def test_threads_work_on_sequential_sources_too():
    seen = set()

    def note(x):
        seen.add(threading.get_ident())
        time.sleep(0.002)
        return x

    data = ds.GeneratorDataset(lambda: iter(range(40)), "x").map(note, num_parallel_workers=4)
    assert column(data) == list(range(40))
    assert len(seen) > 1
    batches = ds.GeneratorDataset(lambda: iter(range(7)), "x").batch(2, num_parallel_workers=3)
    assert column(batches) == [[0, 1], [2, 3], [4, 5], [6]]
    failing = ds.GeneratorDataset(lambda: iter(range(7)), "x").map(lambda x: {0: 1}[int(x)], num_parallel_workers=3)
    with pytest.raises(RuntimeError, match="KeyError: 1") as caught:
        column(failing)
    assert not getattr(caught.value, "__notes__", [])


class OwnOrder(ds.Sampler):
    """Draws another order each time it is called."""

    def __iter__(self):
        return iter(np.random.permutation(self.dataset_size).tolist())


def test_own_samplers_are_called_once_per_pass():
    ds.config.set_num_parallel_workers(4)
    data = numbers(7, sampler=OwnOrder()).map(ds.transforms.TypeCast(np.int32))
    for epoch in column(data, epochs=30):
        assert sorted(epoch) == list(range(7))


def test_processes_refuse_own_samplers():
    data = numbers(7, sampler=OwnOrder()).map(lambda x: x, num_parallel_workers=2, python_multiprocessing=True)
    with pytest.raises(ValueError, match="one of your own"):
        column(data)


def test_epochs_of_another_size_are_refused():
    class Growing(ds.Sampler):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(range(min(self.passes, 5)))

    with pytest.raises(RuntimeError, match="as many rows"):
        column(numbers(9, sampler=Growing()), epochs=4)


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: ds.config.set_seed(-1)),
        (ValueError, lambda: ds.config.set_seed(2**32)),
        (TypeError, lambda: ds.config.set_seed("a")),
        (TypeError, lambda: ds.config.set_seed(True)),
        (ValueError, lambda: ds.config.set_num_parallel_workers(0)),
        (TypeError, lambda: ds.config.set_prefetch_size("a")),
    ],
)
def test_config_errors(error, make):
    with pytest.raises(error):
        make()


def test_config_defaults():
    assert ds.config.get_seed() == 5489
    ds.config.set_seed(2**32 - 1)
    assert ds.config.get_seed() == 2**32 - 1
    ds.config.set_prefetch_size(3)
    assert ds.config.get_prefetch_size() == 3
    ds.config.set_num_parallel_workers(100)
    assert ds.config.get_num_parallel_workers() == 100


ABANDONED = """
import os
import signal
import sys
import time
from multiprocessing import resource_tracker

import numpy as np
import sporax.mindspore.dataset as ds

if "slow" in sys.argv and __name__ != "__main__":  # a worker
    register = resource_tracker.register

    def register_late(name, kind):
        if kind == "shared_memory":
            time.sleep(0.5)  # a worker is always between making a name and notifying the tracker
        register(name, kind)

    resource_tracker.register = register_late

class Pictures:
    def __len__(self):
        return 40

    def __getitem__(self, row):
        return np.full((101, int(sys.argv[2])), row, np.float32)

def main():
    data = ds.GeneratorDataset(Pictures(), ["x"], shuffle=False)
    data = data.map(lambda x: x + 1, num_parallel_workers=2, python_multiprocessing=True)
    iterator = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
    row = next(iterator)
    assert next(iterator)[0][0, 0] == row[0][0, 0] + 1
    if sys.argv[1].startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3)  # with an open iterator and a row in hand

if __name__ == "__main__":
    main()
"""


def rows_in_shared_memory(columns):
    """Objects of the size of the rows of ABANDONED, which no other program is likely to have."""
    left = []
    for entry in Path("/dev/shm").iterdir():
        with contextlib.suppress(FileNotFoundError):
            left += [entry.name] if entry.stat().st_size == 101 * columns * 4 else []
    return left


@pytest.mark.sampled(1)
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="the system shows shared memory in no folder")
@pytest.mark.parametrize(
    ("end", "code", "columns"),  # a size for each: these tests may run at the same time
    [("exit", 3, 103), ("kill", -9, 107), pytest.param("kill slow", -9, 109, marks=pytest.mark.full)],
)
def test_processes_leave_no_shared_memory(tmp_path, end, code, columns):
    script, errors = tmp_path / "script.py", tmp_path / "errors"
    script.write_text(ABANDONED)
    how, *slow = end.split()
    with errors.open("w") as file:
        program = [sys.executable, str(script), how, str(columns), *slow]
        done = subprocess.run(program, stderr=file, timeout=200, check=False)
    assert done.returncode == code, errors.read_text()
    deadline = time.monotonic() + 60
    while (left := rows_in_shared_memory(columns)) and time.monotonic() < deadline:
        time.sleep(0.1)  # workers notice the end of their user, then Python's resource tracker that of the workers
    assert left == []
    assert how == "kill" or "leaked" not in errors.read_text()


@pytest.mark.parametrize("step", [0, 1, 3, 5])
def test_iterators_begin_behind_the_steps_that_were_taken(step):
    def batches(first):
        data = ds.NumpySlicesDataset(np.arange(6), ["x"]).shuffle(4).batch(2)
        data.set_init_step(first)
        assert data.project("x").get_init_step() == first
        # Sizes and shapes stay those of the whole.
        assert (len(data), data.output_shapes()) == (3, [[2]])
        iterator = data.create_dict_iterator(num_epochs=2, output_numpy=True)
        return [row["x"].tolist() for _ in range(2 - first // 3) for row in iterator]

    assert batches(step) == batches(0)[step:]
    with pytest.raises(RuntimeError, match="reset step must be less than dataset_size"):
        batches(6)


def test_whether_iterators_are_released_is_known_until_the_next_one():
    iterator = iter(numbers().create_tuple_iterator())
    assert not iterators.check_iterator_cleanup()
    iterators._cleanup()
    assert iterators.check_iterator_cleanup()
    with pytest.raises(AttributeError, match="it was stopped"):
        next(iterator)
    numbers().create_tuple_iterator()
    assert not iterators.check_iterator_cleanup()
    iterators._set_iterator_cleanup()
    iterators._unset_iterator_cleanup()
    assert not iterators.check_iterator_cleanup()
