"""Where variables are between steps: host memory, files, blocks, stacks."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.storage import block_files, safetensors_format
    from sporax.runtime.storage.block_files import DiskSettings, Place
    from sporax.runtime.storage.entries import (
        MAX_DIMS,
        CheckpointEntry,
        CorruptCheckpointError,
        Region,
        Shape,
        StoredTensor,
        check_shape,
        full_region,
        overlap,
        region_shape,
        volume,
        within,
    )
    from sporax.runtime.storage.safetensors_format import CheckedWriter, combined_crc
    from sporax.runtime.storage.slice_directory import MARKER, open_directory, read_marker, write_marker, write_slices
    from sporax.runtime.storage.slices import (
        RankPlace,
        Slice,
        SliceEntry,
        SliceSource,
        StoredSlice,
        held_slices,
        placed,
        placed_blocks,
        this_rank,
    )
    from sporax.runtime.storage.tensor_files import (
        Contents,
        TensorFile,
        check_safetensors,
        open_mapped,
        safetensors_contents,
        write_safetensors,
    )

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
