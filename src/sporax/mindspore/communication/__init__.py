"""Ranks and groups of ranks: `mindspore.communication`."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = {name: f"{__name__}.{name}" for name in ("comm_func", "management")} | homes_in(
    __name__,
    """
    management: GlobalComm HCCL_WORLD_COMM_GROUP MCCL_WORLD_COMM_GROUP NCCL_WORLD_COMM_GROUP create_group destroy_group
        get_comm_name get_group_rank_from_world_rank get_group_size get_local_rank get_local_rank_size
        get_process_group_ranks get_rank get_world_rank_from_group_rank init release
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
