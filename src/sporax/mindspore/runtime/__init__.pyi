"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.runtime._memory import empty_cache as empty_cache
from sporax.mindspore.runtime._memory import max_memory_allocated as max_memory_allocated
from sporax.mindspore.runtime._memory import max_memory_reserved as max_memory_reserved
from sporax.mindspore.runtime._memory import memory_allocated as memory_allocated
from sporax.mindspore.runtime._memory import memory_reserved as memory_reserved
from sporax.mindspore.runtime._memory import memory_stats as memory_stats
from sporax.mindspore.runtime._memory import memory_summary as memory_summary
from sporax.mindspore.runtime._memory import reset_max_memory_allocated as reset_max_memory_allocated
from sporax.mindspore.runtime._memory import reset_max_memory_reserved as reset_max_memory_reserved
from sporax.mindspore.runtime._memory import reset_peak_memory_stats as reset_peak_memory_stats
from sporax.mindspore.runtime._memory import set_memory as set_memory
from sporax.mindspore.runtime._memory import synchronize as synchronize
from sporax.mindspore.runtime._streams import Event as Event
from sporax.mindspore.runtime._streams import Stream as Stream
from sporax.mindspore.runtime._streams import StreamCtx as StreamCtx
from sporax.mindspore.runtime._streams import communication_stream as communication_stream
from sporax.mindspore.runtime._streams import current_stream as current_stream
from sporax.mindspore.runtime._streams import default_stream as default_stream
from sporax.mindspore.runtime._streams import launch_blocking as launch_blocking
from sporax.mindspore.runtime._streams import set_cur_stream as set_cur_stream


