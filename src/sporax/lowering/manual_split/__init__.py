"""Lookups in a table whose rows are split into uneven parts by hand (`manual_split`), on the devices.

`kernel` has the masked lookup, its transpose, and how one device runs both on its slices. `blocks` rewrites a traced step
so that such a table, its gradient and its moments are held in blocks of equal size.

The other layers have one file each: `ir/uneven.py` (the parts of a table), `planner/operators/manual_split.py` (MindSpore's
conditions), `planner/rules/uneven.py` (sharding rules of the kernels), `runtime/blocked_variables.py` (variables in blocks
between steps) and `ops/array/lookup.py` (the operators that may have such a table).
"""
