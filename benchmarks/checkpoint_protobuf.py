"""Is the `protobuf` package as fast as our own reader and writer of MindSpore's files?

Both write and read the same `.ckpt` files (one of few large parameters, one of many small ones) and the same strategy files,
in one process, by turns; each line gives the best times and the ratio protobuf / own. `protobuf` must be installed.

    python benchmarks/checkpoint_protobuf.py [--megabytes 256] [--parameters 20000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sporax.mindspore.context._strategy_files import protobuf as strategy_protobuf
from sporax.mindspore.train import _ckpt_format
from sporax.runtime.storage.entries import CheckpointEntry

Field = descriptor_pb2.FieldDescriptorProto


def classes() -> dict[str, Any]:
    """The messages of both files as protobuf makes them, without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="files.proto", package="files", syntax="proto2")
    message, number, text, content = Field.TYPE_MESSAGE, Field.TYPE_INT64, Field.TYPE_STRING, Field.TYPE_BYTES
    for name, fields in {
        "Tensor": [("dims", 1, number, True, ""), ("kind", 2, text, False, ""), ("content", 3, content, False, "")],
        "Value": [("tag", 1, text, False, ""), ("tensor", 2, message, False, "Tensor")],
        "Checkpoint": [("value", 1, message, True, "Value")],
        "Dims": [("dim", 1, number, True, "")],
        "Strategy": [("stage", 1, number, False, ""), ("cuts", 2, message, True, "Dims")],
        "Item": [("name", 1, text, False, ""), ("strategy", 2, message, False, "Strategy")],
        "Strategies": [("current_stage", 1, number, False, ""), ("items", 2, message, True, "Item")],
    }.items():
        entry = file.message_type.add(name=name)
        for field, place, kind, repeated, of in fields:
            label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
            added = entry.field.add(name=field, number=place, type=kind, label=label)
            if of:
                added.type_name = f".files.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        entry.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"files.{entry.name}"))
        for entry in file.message_type
    }


def by_protobuf(made: dict[str, Any], entries: list[CheckpointEntry]) -> bytes:
    """A checkpoint without checksum."""
    checkpoint = made["Checkpoint"]()
    for entry in entries:
        array = entry.value
        value = checkpoint.value.add(tag=entry.name)
        value.tensor.dims.extend(array.shape)
        value.tensor.kind = "Float32"
        value.tensor.content = array.tobytes()
    return bytes(checkpoint.SerializeToString())


def read_by_protobuf(made: dict[str, Any], content: bytes) -> list[CheckpointEntry]:
    """Its entries."""
    checkpoint = made["Checkpoint"].FromString(content)
    return [
        CheckpointEntry(value.tag, np.frombuffer(value.tensor.content, np.float32).reshape(tuple(value.tensor.dims)))
        for value in checkpoint.value
    ]


def by_hand(entries: list[CheckpointEntry]) -> bytes:
    file = io.BytesIO()
    _ckpt_format.write(file, entries)
    return file.getvalue()


def compare(what: str, rounds: int, own: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    best = [float("inf")] * 2
    for _ in range(rounds):
        for place, function in enumerate((own, theirs)):
            start = time.perf_counter()
            function()
            best[place] = min(best[place], time.perf_counter() - start)
    print(f"{what:44} own {best[0] * 1e3:9.2f} ms   protobuf {best[1] * 1e3:9.2f} ms   ratio {best[1] / best[0]:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256, help="of the file of large parameters")
    parser.add_argument("--parameters", type=int, default=20_000, help="of the file of small parameters")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    made = classes()
    large = [
        CheckpointEntry(f"layer{n}.weight", np.ones((1024, 4096), np.float32)) for n in range(options.megabytes // 16)
    ]
    small = [CheckpointEntry(f"layer{n}.bias", np.ones((16,), np.float32)) for n in range(options.parameters)]
    for name, entries in (("large parameters", large), ("small parameters", small)):
        content = by_hand(entries)
        assert content == by_protobuf(made, entries), "both must write the same bytes"
        compare(f"{name}: write", options.rounds, lambda e=entries: by_hand(e), lambda e=entries: by_protobuf(made, e))
        compare(
            f"{name}: read",
            options.rounds,
            lambda c=content: (_ckpt_format.parsed(memoryview(c)), _ckpt_format.check_sum(memoryview(c))),
            lambda c=content: read_by_protobuf(made, c),
        )
    items = {f"MatMul_layer{n}.weight": {"parallel_strategy": [[2, 4], [4, 1]], "stage": 0} for n in range(2000)}
    message = strategy_protobuf.encode({"current_stage": 0, "parallel_strategy_item": items})
    compare(
        "strategy file of 2,000 operators: read",
        options.rounds,
        lambda: strategy_protobuf.decode(message),
        lambda: {
            item.name: [list(cut.dim) for cut in item.strategy.cuts]
            for item in made["Strategies"].FromString(message).items
        },
    )


if __name__ == "__main__":
    main()
