"""Run a training script as it stands, under whichever MindSpore is imported, and leave what it trained.

    python tools/_watched_script.py SETTINGS.json train.py ARGUMENTS...

Problem: two frameworks draw other first weights, shuffle otherwise and drop other elements, so that their losses say nothing of
each other. Method: before the script begins, the doors to chance are closed. Sources keep their order, random transforms become
fixed ones, nothing is dropped, and the weights that an optimizer takes follow from their names. At the end the weights and the
number of steps of every optimizer go into the file that the settings name. `arguments` of the settings replace arguments of
classes where a script holds its sizes in its source: `{"src.utils:GPTConfig": {"num_layers": 2}}`; `constants` replace its
attributes, `{"src.config:Config.epochs": 1}`. Of an evaluation (`results` of the settings) the weights follow from their names
where it would load a checkpoint, and the numbers that it prints in lines with one of those words are what it leaves. `float32`
leaves out the float16 that a script chose. `steps` ends every source after so many batches. `ulp` moves each first weight by one
unit in the last place of that type, up or down by chance: two runs of one framework that differ in this alone tell how much a
program magnifies rounding.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import multiprocessing
import random
import re
import runpy
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import mindspore as ms
from mindspore import dataset, nn
from mindspore.dataset import transforms, vision

Arguments = dict[str, Any]


def preset(owner: Any, change: Callable[[Arguments], None], method: str = "__init__") -> None:
    """Let `change` have the arguments of a class's constructor, or of another method, before they are read."""
    original = getattr(owner, method)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def changed(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    setattr(owner, method, changed)


def in_order(arguments: Arguments) -> None:
    """A source that does not shuffle."""
    one_worker(arguments)
    sampler = arguments.get("sampler")
    if sampler is None:
        arguments["shuffle"] = False
    elif hasattr(sampler, "shuffle"):  # one of the script's own
        sampler.shuffle = False


def one_worker(arguments: Arguments) -> None:
    """As many workers as any machine has: MindSpore refuses more than there are cores."""
    if "num_parallel_workers" in arguments:
        arguments["num_parallel_workers"] = 1


def keep_all(arguments: Arguments) -> None:
    """A Dropout that drops nothing."""
    arguments.pop("keep_prob", None)
    arguments["p"] = 0.0


def same(image: Any) -> Any:
    """The image, or what else it is called with, as it is."""
    return image


#: Random transform -> what stands in its place.
FIXED: dict[str, Callable[..., Any]] = {
    "RandomCrop": lambda size, *_, **__: vision.CenterCrop(size),
    "RandomCropDecodeResize": lambda size, *_, **__: transforms.Compose([vision.Decode(), vision.Resize((size, size))]),
    "RandomResizedCrop": lambda size, *_, **__: vision.Resize((size, size) if isinstance(size, int) else size),
    "RandomHorizontalFlip": lambda *_, **__: same,
    "RandomVerticalFlip": lambda *_, **__: same,
    "RandomColorAdjust": lambda *_, **__: same,
    "CutOut": lambda *_, **__: same,
}


class Seeded:
    """A source or transform of the script's own, whose draws of Python's and NumPy's chance are equal for each row."""

    #: Sources and transforms run in threads beside each other, and share the chance.
    turn = threading.RLock()

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def __len__(self) -> int:
        return len(self.wrapped)

    def __getitem__(self, index: int) -> Any:
        return self.drawn(self.wrapped.__getitem__, index)

    def __call__(self, *args: Any) -> Any:
        return self.drawn(self.wrapped, *args)

    def drawn(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives after the seeds were set."""
        with self.turn:
            random.seed(1)
            np.random.seed(1)
            return function(*args)


def seeded_source(arguments: Arguments) -> None:
    """The rows of a source of the script's own do not depend on what was drawn before."""
    if hasattr(arguments["source"], "__getitem__"):
        arguments["source"] = Seeded(arguments["source"])


def seeded_transforms(arguments: Arguments) -> None:
    """What functions of the script make of a row does not depend on what was drawn before."""
    one_worker(arguments)
    operations = arguments.get("operations")
    if isinstance(operations, list):
        arguments["operations"] = [Seeded(each) if of_script(each) else each for each in operations]
    elif of_script(operations):
        arguments["operations"] = Seeded(operations)


def of_script(transform: Any) -> bool:
    """Whether the script made a transform: a function, or an object of a class of its own."""
    return inspect.isroutine(transform) or not type(transform).__module__.startswith(
        ("mindspore", "sporax", "builtins")
    )


def seeded_batches(arguments: Arguments) -> None:
    """What the script makes of a batch does not depend on what was drawn before."""
    one_worker(arguments)
    if arguments.get("per_batch_map") is not None:
        arguments["per_batch_map"] = Seeded(arguments["per_batch_map"])


def close_the_doors() -> None:
    """Sources in their order, no random transform, no dropout."""
    ms.set_seed(1)
    random.seed(1)
    random.shuffle = lambda values, random=None: None  # Python 3.11 has no `random` any more
    multiprocessing.cpu_count = lambda: 16  # a script may refuse smaller machines
    # First weights that a script draws by itself: equal in both frameworks, whatever each has drawn from the common state before.
    np.random.normal = lambda loc=0.0, scale=1.0, size=None: (
        np.random.RandomState(1).standard_normal(size) * scale + loc
    )
    for name, kind in {"int": int, "float": float, "object": object}.items():
        if name not in np.__dict__:  # NumPy's old names, which it has no more
            setattr(np, name, kind)
    for name in dir(dataset):
        source = getattr(dataset, name)
        if name.endswith("Dataset") and "shuffle" in inspect.signature(source.__init__).parameters:
            preset(source, in_order)
    dataset.Dataset.shuffle = lambda self, *_, **__: self
    preset(dataset.Dataset, seeded_transforms, "map")
    preset(dataset.Dataset, seeded_batches, "batch")
    preset(dataset.GeneratorDataset, seeded_source)
    preset(nn.Dropout, keep_all)
    for place in ("mindspore.dataset.vision", "mindspore.dataset.vision.c_transforms"):
        with contextlib.suppress(
            ModuleNotFoundError
        ):  # the wheel has no older one, and Sporax imports it when it is requested
            module = importlib.import_module(place)
            for name, fixed in FIXED.items():
                setattr(module, name, fixed)


def in_float32() -> None:
    """No float16, whatever the script chose."""
    nn.Cell.to_float = lambda self, dtype: self
    preset(ms.Model, lambda arguments: arguments.update(amp_level="O0"))


def on_the_cpu(arguments: Arguments) -> None:
    """The device that the wheel has; Sporax takes whatever there is."""
    arguments["kwargs"] = {**arguments["kwargs"], "device_target": "CPU"}
    arguments["kwargs"].pop("device_id", None)


def named_value(name: str, value: np.ndarray) -> np.ndarray:
    """A value that follows from a Parameter's name and shape; constants and whole numbers stay."""
    constant = value.min() == value.max() and (value.size > 1 or value.max() in (0, 1))
    if not np.issubdtype(value.dtype, np.floating) or not value.ndim or constant:
        return value
    bound = float(np.sqrt(3 / max(1, np.prod(value.shape[1:]))))
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(-bound, bound, value.shape).astype(value.dtype)


def less_than(_: Any = None) -> Callable[[Any, Any], Any]:
    """`ops.Less()` that takes a number for the first operand, too, as programs for older releases ask it to."""

    def less(x: Any, y: Any) -> Any:
        return y > x

    return less


def off_by_one(value: np.ndarray, kind: str) -> np.ndarray:
    """A value moved up or down by one unit in the last place of a type; zeros, whole numbers and single ones stay."""
    if not np.issubdtype(value.dtype, np.floating) or not value.ndim:
        return value
    up = np.random.RandomState(value.size).randint(0, 2, value.shape)
    return (value * (1 + np.finfo(kind).eps * (2.0 * up - 1))).astype(value.dtype)


def stop_after(steps: int) -> None:
    """So many batches and no more."""
    original = dataset.Dataset.batch

    @functools.wraps(original)
    def shortened(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs).take(steps)

    dataset.Dataset.batch = shortened


def load_by_name() -> None:
    """Checkpoints that nobody has: a network into which one is loaded gets values by name."""

    def filled(net: Any, *_: Any, **__: Any) -> tuple[list[str], list[str]]:
        for parameter in net.get_parameters():
            parameter.set_data(ms.Tensor(named_value(parameter.name, parameter.asnumpy())))
        return [], []

    def read(_: str, net: Any = None, **__: Any) -> dict[str, Any]:
        if net is not None:
            filled(net)
        return {}

    for place in ("mindspore", "mindspore.train", "mindspore.train.serialization"):
        module = importlib.import_module(place)
        module.load_checkpoint, module.load_param_into_net = read, filled


class Printed:
    """What is printed, of which the numbers in lines with one of some words are kept."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.to, self.lines = words, sys.stdout, [""]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.to, name)

    def write(self, text: str) -> int:
        """Pass text on, and remember it."""
        *ended, last = (self.lines[-1] + text).split("\n")
        self.lines = [*self.lines[:-1], *ended, last]
        return self.to.write(text)

    def numbers(self) -> np.ndarray:
        """The numbers in lines with one of the words."""
        lines = [line for line in self.lines if any(word in line for word in self.words)]
        found = [re.findall(r"(?<![\w.])-?\d+\.?\d*(?:e[-+]?\d+)?", line) for line in lines]
        return np.array([float(number) for numbers in found for number in numbers])


def watch_optimizers(ulp: str) -> list[Any]:
    """The optimizers that the script makes, whose weights get values by name, off by one unit in the last place of type `ulp`."""
    made: list[Any] = []
    original = nn.Optimizer.__init__

    @functools.wraps(original)
    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)
        for parameter in self.parameters:
            value = named_value(parameter.name, parameter.asnumpy())
            parameter.set_data(ms.Tensor(off_by_one(value, ulp) if ulp else value))

    nn.Optimizer.__init__ = watched
    return made


class Gone:
    """A name that the wheel has no more: a private one checks arguments and passes all, others raise when they are called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        if not self.name.rpartition(".")[2].startswith("_"):
            raise NotImplementedError(f"{self.name} left MindSpore")
        return same


class OldModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of MindSpore that the wheel has no more, for programs that import more names than they use."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The transforms in C++, which are the only ones now, and the parts of `parallel._transformer`."""
        if re.match(r"mindspore\.(dataset\.\w+\.c_transforms$|parallel\._transformer)", name):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: Any) -> None:
        """Have the module offer the names of the package that it was in, or any public or private one."""
        package, _, last = module.__name__.rpartition(".")

        def gone(name: str) -> Gone:
            if name.startswith("__"):
                raise AttributeError(name)
            return Gone(f"{module.__name__}.{name}")

        module.__getattr__ = functools.partial(getattr, sys.modules[package]) if last == "c_transforms" else gone


def main() -> None:
    """Close the doors, run the script, and write the weights, however it ends."""
    settings_file, script, *arguments = sys.argv[1:]
    settings = json.loads(Path(settings_file).read_text())
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    close_the_doors()
    if "sporax" not in str(ms.__file__):
        preset(ms.context, on_the_cpu, "set_context")
        ms.set_context = ms.context.set_context
        ms.ops.Less = ms.ops.operations.Less = less_than
        importlib.import_module("mindspore._c_expression").Tensor = ms.Tensor  # releases up to 2.4 have it
        sys.meta_path.append(OldModules())
    for place, values in settings["arguments"].items():
        module, name = place.split(":")
        owner = importlib.import_module(module)
        change = functools.partial(dict.update, **values)
        preset(owner, change, name) if inspect.isfunction(getattr(owner, name)) else preset(
            getattr(owner, name), change
        )
    for place, value in settings["constants"].items():
        module, path = place.split(":")
        *owners, name = path.split(".")
        owner = importlib.import_module(module)
        for entry in owners:
            owner = owner[entry] if isinstance(owner, dict) else getattr(owner, entry)
        owner.update({name: value}) if isinstance(owner, dict) else setattr(owner, name, value)
    optimizers = watch_optimizers(settings["ulp"])
    if settings["steps"]:
        stop_after(settings["steps"])
    if settings["float32"]:
        in_float32()
    if settings["results"]:
        load_by_name()
        sys.stdout = printed = Printed(settings["results"])
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        weights = {
            f"{number}:{parameter.name}": parameter.asnumpy()
            for number, optimizer in enumerate(optimizers)
            for parameter in (*optimizer.parameters, optimizer.global_step)
        }
        if settings["results"]:
            weights["results"] = printed.numbers()
        np.savez(settings["weights"], **weights)


if __name__ == "__main__":
    main()
