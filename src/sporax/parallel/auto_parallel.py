"""`AutoParallel`: a network with parallel settings of its own, instead of those of the whole process.

While the wrapped network is traced, its settings are the present ones; afterwards the global ones are back. On one device
every mode comes down to running the network as it is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from sporax import context
from sporax.context import get_group_size, get_rank
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ir.parallel_config import OPTIMIZER_LEVELS, PIPELINE_SCHEDULERS, ParallelConfig, ParallelMode
from sporax.nn.cell import Cell
from sporax.parallel._strategy_files import check_operator_file
from sporax.runtime import state
