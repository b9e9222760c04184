"""Checkpoints as they are stored; `train.serialization` and `train.checkpoint` are built on it.

| module | subject |
|---|---|
| `files` | checkpoint files by their suffix, opened and written tensor by tensor |
| `slice_files` | what a rank writes of each Parameter, next to the files of the other ranks |
| `deferred` | values that are read when, and where, they are needed |
"""
