"""Where values are stored besides the devices: parameter servers, host memory, or disk."""

from __future__ import annotations

from dataclasses import field

from sporax.base.lazy_members import dataclass

DURABILITIES = ("memory", "process", "disk", "replica")
"""What an acknowledged update survives: nothing, the server's process, power loss, the loss of one server's machine."""


@dataclass(frozen=True, slots=True)
class PsConfig:
    """Settings of parameter-server training. Field names are the keys of `set_ps_context`.

    Attributes:
        enable_ps: whether parameter servers are used.
        server_mode: kind of server; ``"PARAMETER_SERVER"`` is the only one.
        ms_role: role of this process.
        worker_num, server_num: how many of each there are.
        scheduler_ip, scheduler_port: where the scheduler listens.
        enable_ssl: encrypt connections.
        client_password, server_password: of the key files; never printed.
        config_file_path: JSON file with certificate paths.
        staleness: 0 synchronous, k bounded, -1 unbounded; None for what the job was started with. Not in MindSpore.
        durability: ``"memory"``, ``"process"``, ``"disk"``, ``"replica"``; "" for what the job was started with. Not in
            MindSpore.
    """

    enable_ps: bool = False
    server_mode: str = ""
    ms_role: str = "MS_NOT_PS"
    worker_num: int = 0
    server_num: int = 0
    scheduler_ip: str = "127.0.0.1"
    scheduler_port: int = 6667
    enable_ssl: bool = False
    client_password: str = field(default="", repr=False)
    server_password: str = field(default="", repr=False)
    config_file_path: str = ""
    staleness: int | None = None
    durability: str = ""


@dataclass(frozen=True, slots=True)
class OffloadConfig:
    """Where parameters and saved activations live when the device is too small. Field names are the keys of the dict
    that `set_offload_context` takes.

    Attributes:
        offload_param, offload_checkpoint: ``"cpu"``, ``"disk"``, or "" for the device.
        offload_path: directory for values on disk.
        offload_cpu_size, offload_disk_size: limits, ``"512GB"``; "" for all there is.
        host_mem_block_size, aio_block_size: sizes of one transfer, "" for a default.
        enable_aio, aio_queue_depth: asynchronous disk access, and how many requests may wait.
        enable_pinned_mem: use pinned host memory.
        auto_offload: move values only when memory runs short; False: `offload_param` always holds.
        cpu_ratio, hbm_ratio: shares of host and device memory that may be used, in (0, 1].
    """

    offload_param: str = ""
    offload_checkpoint: str = ""
    offload_path: str = "./offload"
    offload_cpu_size: str = ""
    offload_disk_size: str = ""
    host_mem_block_size: str = ""
    enable_aio: bool = True
    aio_block_size: str = ""
    aio_queue_depth: int = 1024
    enable_pinned_mem: bool = True
    auto_offload: bool = True
    cpu_ratio: float = 1.0
    hbm_ratio: float = 1.0
