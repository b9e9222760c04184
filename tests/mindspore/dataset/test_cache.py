"""`DatasetCache`: sources and maps work once, within the limits; what happens was compared with MindSpore's cache server."""

import threading
import time
import warnings

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import config, text, transforms, vision
from sporax.mindspore.dataset._sources import memory
from sporax.mindspore.dataset.vision import _files

from .conftest import column, rows

ROW_BYTES = 32 * 32 * 3 + 4


@pytest.fixture
def cifar(tmp_path):
    """A folder with 1000 images of CIFAR-10."""
    records = np.random.default_rng(0).integers(0, 10, (1000, 3073)).astype(np.uint8)
    (tmp_path / "data_batch_1.bin").write_bytes(records.tobytes())
    return str(tmp_path)


@pytest.fixture
def gathered(monkeypatch):
    """How often each row of arrays was read."""
    counts, lock = {}, threading.Lock()
    gather = memory.ArrayTable.gather

    def count(table, indices):
        for index in indices:
            with lock:
                counts[int(index)] = counts.get(int(index), 0) + 1
        return gather(table, indices)

    monkeypatch.setattr(memory.ArrayTable, "gather", count)
    return counts


def cache(**options):
    return ds.DatasetCache(session_id=1, **options)


def numbers(count=10, **options):
    return ds.NumpySlicesDataset(np.arange(count), ["a"], **options)


def counting(calls):
    def operation(x):
        calls.append(int(x))
        return x * 10

    return operation


def test_a_source_is_read_once_over_epochs(cifar, gathered):
    kept = cache()
    cached = ds.Cifar10Dataset(cifar, "train", num_samples=10, shuffle=False, cache=kept)
    epochs = rows(cached, 3)
    assert epochs[0] == epochs[1] == epochs[2]
    assert gathered == dict.fromkeys(range(10), 1)
    assert kept.get_stat() == ds._cache.CacheStatistics(ROW_BYTES, 10, 0)
    plain = ds.Cifar10Dataset(cifar, "train", num_samples=10, shuffle=False)
    assert rows(plain) == epochs[0]


def test_image_files_are_decoded_once(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    for number in range(4):
        image.fromarray(np.full((2, 2, 3), number, np.uint8)).save(tmp_path / "a" / f"{number}.png")
    calls = []
    decode = _files.decode
    monkeypatch.setattr(
        "sporax.mindspore.dataset._sources.reading.decode", lambda *given: calls.append(given) or decode(*given)
    )
    cached = ds.ImageFolderDataset(str(tmp_path), decode=True, shuffle=True, num_parallel_workers=1, cache=cache())
    first, second = rows(cached, 2)
    assert len(calls) == 4
    assert sorted(map(str, first)) == sorted(map(str, second))


def test_each_epoch_samples_anew(cifar):
    config.set_seed(1)
    kept = cache()
    shuffled = ds.Cifar10Dataset(cifar, "train", cache=kept)
    plain = ds.Cifar10Dataset(cifar, "train")
    assert [row[1] for row in rows(shuffled)] == [row[1] for row in rows(plain)]
    share = ds.Cifar10Dataset(cifar, "train", num_shards=2, shard_id=1, shuffle=False, cache=cache())
    assert len(rows(share)) == 500


def test_memory_is_limited(cifar, gathered):
    config.set_num_parallel_workers(1)
    kept = cache(size=1)
    cached = ds.Cifar10Dataset(cifar, "train", shuffle=False, cache=kept)
    fitting = 2**20 // ROW_BYTES
    assert rows(cached, 2)[1] == rows(ds.Cifar10Dataset(cifar, "train", shuffle=False))
    assert kept.get_stat() == ds._cache.CacheStatistics(ROW_BYTES, fitting, 0)
    assert [gathered[0], gathered[fitting - 1], gathered[fitting]] == [2, 2, 3]  # one of them for the comparison


def test_what_does_not_fit_goes_to_disk(cifar, gathered, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = cache(size=1, spilling=True)
    cached = ds.Cifar10Dataset(cifar, "train", shuffle=False, cache=kept)
    first, second = rows(cached, 2)
    assert first == second
    assert set(gathered.values()) == {1}
    statistics = kept.get_stat()
    fitting = 2**20 // ROW_BYTES
    assert (statistics.num_mem_cached, statistics.num_disk_cached) == (fitting, 1000 - fitting)


def test_a_full_disk_says_so(monkeypatch, cifar):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(RuntimeError, match="For 'DatasetCache'.*No space left"):
        rows(ds.Cifar10Dataset(cifar, "train", cache=cache(size=1, spilling=True)))


def test_a_map_works_once():
    calls = []
    kept = cache()
    mapped = numbers(shuffle=False).map(counting(calls), "a", cache=kept)
    assert column(mapped, 3) == [[10 * i for i in range(10)]] * 3
    assert sorted(calls) == list(range(10))
    assert kept.get_stat().num_mem_cached == 10
    assert column(mapped) == [10 * i for i in range(10)]  # of another iterator
    assert len(calls) == 10


def test_a_map_over_a_shuffled_source_keeps_rows_and_shuffles():
    config.set_seed(3)
    calls = []
    mapped = numbers().map(counting(calls), "a", ["b"], cache=cache())
    plain = numbers().map(lambda x: x * 10, "a", ["b"])
    assert column(mapped, 3) == column(plain, 3)
    assert sorted(calls) == list(range(10))


def test_maps_and_selections_may_stand_below():
    calls = []
    pipeline = ds.NumpySlicesDataset({"a": np.arange(4), "b": np.arange(4)}, shuffle=False)
    pipeline = pipeline.map(counting(calls), "a").rename("a", "c").project("c").map(np.negative, "c", cache=cache())
    assert column(pipeline.batch(2), 2) == [[[0, -10], [-20, -30]]] * 2
    assert sorted(calls) == list(range(4))


def test_random_operations_behind_a_cache_stay_random():
    config.set_seed(1)
    images = ds.FakeImageDataset(4, (6, 6, 3), 2, shuffle=False, cache=cache()).map(vision.RandomCrop(2), "image")
    first, second = rows(images, 2)
    assert first != second


def test_rows_of_a_cache_may_be_changed_in_place():
    def spoil(x):
        x += 1
        return x

    pipeline = numbers(3, shuffle=False).map(np.negative, "a", cache=cache()).map(spoil, "a")
    assert column(pipeline, 3) == [[1, 0, -1]] * 3
    twice = numbers(3, sampler=[1, 1]).map(np.negative, "a", cache=cache()).map(spoil, "a")
    assert column(twice.batch(2), 2) == [[[0, 0]]] * 2


def test_strings_and_dicts_are_kept(tmp_path):
    (tmp_path / "lines.txt").write_text("a\nbc\n")
    lines = ds.TextFileDataset(str(tmp_path / "lines.txt"), shuffle=False, cache=cache())
    assert column(lines, 2) == [["a", "bc"]] * 2
    split = ds.TextFileDataset(str(tmp_path / "lines.txt"), shuffle=False).map(
        text.UnicodeCharTokenizer(), cache=cache()
    )
    assert column(split, 2) == [[["a"], ["b", "c"]]] * 2
    dicts = numbers(2, shuffle=False).map(lambda x: {"x": x}, "a", cache=cache())
    for _ in range(2):
        assert [row[0]["x"] for row in dicts.create_tuple_iterator(num_epochs=1, output_numpy=True)] == [0, 1]


def test_several_threads_share_a_cache():
    config.set_num_parallel_workers(4)
    kept = cache()
    images = ds.FakeImageDataset(64, (4, 4, 3), 2, cache=kept).map(vision.HWC2CHW(), "image").batch(4)
    assert len(rows(images, 3)[2]) == 16
    assert kept.get_stat().num_mem_cached == 64


def test_threads_wait_for_a_row_that_another_makes():
    calls = []

    def slow(x):
        calls.append(int(x))
        time.sleep(0.01)
        return x

    kept = cache()
    mapped = numbers(4, sampler=[0, 1] * 8).map(slow, "a", num_parallel_workers=4, cache=kept)
    assert column(mapped.batch(2), 2) == [[[0, 1]] * 8] * 2
    assert sorted(calls) == [0, 1]


def test_a_row_that_fails_does_not_block_the_others():
    def fail(x):
        raise ValueError("bad")

    mapped = numbers(4, shuffle=False).map(fail, "a", num_parallel_workers=2, cache=cache())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="bad"):
            column(mapped)


def test_a_cache_keeps_one_pipeline(cifar):
    kept = cache()
    assert len(rows(ds.Cifar10Dataset(cifar, "train", num_samples=3, cache=kept))) == 3
    # The sampler is above the cache, so this one reads the same rows (MindSpore's server counts it as another pipeline).
    assert len(rows(ds.Cifar10Dataset(cifar, "train", num_samples=5, cache=kept))) == 5
    other = ds.FakeImageDataset(3, (2, 2, 3), 2, cache=kept)
    with pytest.raises(RuntimeError, match="For 'DatasetCache'.*another one"):
        rows(other)


REFUSED = {
    "batch": lambda d: d.batch(2),
    "repeat": lambda d: d.repeat(2),
    "skip": lambda d: d.skip(1),
    "take": lambda d: d.take(2),
    "filter": lambda d: d.filter(lambda a: True),
    "shuffle": lambda d: d.shuffle(2),
    "concat": lambda d: d + d,
    "zip": lambda d: d.zip(d.rename("a", "b")),
    "another cache": lambda d: ds.FakeImageDataset(3, cache=cache()).rename("image", "a"),
    "sequential source": lambda d: ds.GeneratorDataset(lambda: iter([1]), "a"),
}


@pytest.mark.parametrize("below", REFUSED.values(), ids=REFUSED)
def test_what_may_not_stand_below_a_cached_map(below):
    with pytest.raises(RuntimeError, match="For 'map', 'cache' needs a source"):
        below(numbers()).map(np.negative, "a", cache=cache())


@pytest.mark.parametrize(
    "operation",
    [
        vision.RandomCrop(2),
        vision.CutOut(2),
        transforms.RandomApply([vision.HorizontalFlip()]),
        transforms.Compose([vision.HorizontalFlip(), vision.RandomHorizontalFlip()]),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_random_operations_are_not_kept(operation):
    with pytest.raises(RuntimeError, match="random operations"):
        ds.FakeImageDataset(3).map(operation, "image", cache=cache())


class Noting(ds.DSCallback):
    def ds_begin(self, run_context):
        pass


def test_processes_and_callbacks_are_refused():
    cached = ds.FakeImageDataset(3, (2, 2, 3), cache=cache())
    with pytest.raises(ValueError, match="For 'DatasetCache'.*python_multiprocessing"):
        rows(cached.map(vision.HWC2CHW(), "image", num_parallel_workers=2, python_multiprocessing=True))
    with pytest.raises(RuntimeError, match="'callbacks'"):
        numbers().map(np.negative, "a", cache=cache(), callbacks=Noting())


@pytest.mark.filterwarnings("ignore:For 'set_debug_mode'")
def test_debug_mode_leaves_caches_out():
    config.set_debug_mode(True)
    calls = []
    kept = cache()
    assert column(numbers(2, shuffle=False).map(counting(calls), "a", cache=kept), 2) == [[0, 10]] * 2
    assert calls == [0, 1] * 2
    with pytest.raises(RuntimeError, match="'get_stat' needs a cache in use"):
        kept.get_stat()


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {"session_id": -1}),
        (ValueError, {"session_id": 0}),
        (TypeError, {"session_id": "a"}),
        (ValueError, {"size": -1}),
        (TypeError, {"size": 1.0}),
        (TypeError, {"spilling": 1}),
        (ValueError, {"port": 3}),
        (TypeError, {"hostname": 3}),
        (ValueError, {"num_connections": 0}),
        (ValueError, {"prefetch_size": 0}),
        (RuntimeError, {"hostname": "10.0.0.1"}),
    ],
    ids=str,
)
def test_wrong_arguments(error, arguments):
    with pytest.raises(error, match="For 'DatasetCache'"):
        ds.DatasetCache(**{"session_id": 1} | arguments)


def test_settings_of_a_server_warn(cifar):
    with pytest.warns(UserWarning, match="port=50052 has no effect"):
        cache(port=50052, hostname="127.0.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache(hostname="localhost")
    for make in (lambda: ds.Cifar10Dataset(cifar, cache=3), lambda: numbers().map(np.negative, "a", cache=3)):
        with pytest.raises(TypeError, match="Argument cache with value 3 is not of type .*DatasetCache"):
            make()
