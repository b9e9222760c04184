"""The front end of MindSpore's compiler, called to see how it would cut a net.

Nothing runs on a device. The process pretends that its devices are GPUs and stops after the front end; strategies and
layouts are read from the compiler, collectives from the graph that it prints. For MindSpore 2.10 (CPU); import this before
a net is made.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GRAPHS = Path(tempfile.mkdtemp(prefix="graphs_"))
os.environ.update(MS_DEV_PRECOMPILE_ONLY="1", MS_DEV_SAVE_GRAPHS="2", MS_DEV_SAVE_GRAPHS_PATH=str(GRAPHS))
os.environ.setdefault("GLOG_v", "4")  # messages of the compiler: 3 shows why a strategy is refused

from mindspore._c_expression import DeviceManagerConf
from mindspore.graph.api import _cell_graph_executor as compiler
from mindspore.ops.operations import comm_ops
from mindspore.parallel._auto_parallel_context import auto_parallel_context

import mindspore as ms

_LINE = re.compile(r"= (?:PrimFunc_)?(AllReduce|AllGather|ReduceScatter|AlltoAll|AllToAll|NeighborExchangeV2)\(")
_RANKS = re.compile(r"group_rank_ids: \(([^)]*)\)")
_FUSION = re.compile(r"(?<![_a-z])fusion: I64\((\d+)\)")
_NAME = re.compile(r"(?:^|/)([A-Za-z]\w*)-op\d+$")  # one that starts with "_" is the compiler's own


def start(**settings: Any) -> None:
    """Forget what was set, and take these settings of the parallel context."""
    device_num = settings["device_num"]
    comm_ops.get_group_size = lambda group="", *_: _size(str(group), device_num)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(**settings)
    handle = auto_parallel_context()._context_handle
    handle.set_hccl_test_avaible(True)
    with contextlib.suppress(RuntimeError):
        DeviceManagerConf.get_instance().set_device("GPU", 0, False)


def compile_net(net: Any, inputs: tuple[Any, ...], train: bool) -> dict[str, Any]:
    """Strategies by operator, layouts by Parameter, and collectives; or the error."""
    for path in GRAPHS.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    net.set_train(train)
    try:
        compiler.compile(net, *inputs, phase="train" if train else "predict")
    except Exception as error:
        return {"error": [type(error).__name__, str(error).split("\n")[0]]}
    layouts = {
        name: {"matrix": list(value[0]), "map": list(value[1]), "slice": list(value[2]), "kept": list(value[7])}
        for name, value in net.parameter_layout_dict.items()
    }
    return {"strategies": _strategies(net), "layouts": layouts, "collectives": list(_collectives())}


def _size(group: str, world: int) -> int:
    """Of a group: its name starts with it, as the compiler makes names."""
    head = group.split("-")[0]
    return int(head) if head.isdigit() else world


def _strategies(net: Any) -> dict[str, list[Any]]:
    """By kind of operator; several of one kind in ascending order, as the compiler does not number them in any."""
    found: dict[str, list[Any]] = {}
    for name, strategy in compiler._get_shard_strategy(net).items():
        match = _NAME.search(name)
        if match:
            found.setdefault(match[1], []).append(strategy)
    return {name: sorted(members) for name, members in found.items()}


def _collectives() -> Iterator[dict[str, Any]]:
    """Of the graph after all passes."""
    files = sorted(GRAPHS.rglob("*validate*.ir"))
    lines = files[-1].read_text().split("\n") if files else []
    for number, line in enumerate(lines):
        match = _LINE.search(line)
        if match is None:
            continue
        ranks, fusion = _RANKS.search(line), _FUSION.search(line)
        yield {
            "kind": match[1],
            "ranks": [int(each) for each in re.findall(r"\d+", (ranks[1] if ranks else "").replace("I64", ""))],
            "fusion": int(fusion[1]) if fusion else 0,
            "result": [int(each) for each in re.findall(r"\d+", _result(lines[number + 1]))],
        }


def _result(line: str) -> str:
    """The shape in the line behind an operator: ``: (<Tensor…, (8, 4)>) -> (<Tensor…, (2, 4)>)``."""
    match = re.search(r"\(([\d, ]*)\)[^()]*\)\s*$", line.split("->")[-1])
    return match[1] if match else ""
