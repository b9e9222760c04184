"""Cells that run a batch in parts: `mindspore.parallel.nn`."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.parallel.nn.micro_batch import (
    GradAccumulation,
    MicroBatchInterleaved,
    Pipeline,
    PipelineCell,
    PipelineGradReducer,
)

__all__ = ["GradAccumulation", "MicroBatchInterleaved", "Pipeline", "PipelineCell", "PipelineGradReducer"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
