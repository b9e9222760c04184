"""The axes of the stages of a pipeline stand so that the strategies find their runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from operator_marks import operator_mark
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.graph import MARK, Operator, OperatorGraph
from sporax.ir.marks import Side
from sporax.ir.operation import Operation, TensorSpec
from sporax.runtime.pipeline.planning import stage_axes, stage_mesh

SPEC = TensorSpec((48, 48), "float32", 4)


@pytest.mark.parametrize(
    ("strategies", "axes"),
    [
        ([((3, 1), (1, 8))], (3, 2, 2, 2)),
        ([((8, 1), (1, 3))], (2, 2, 2, 3)),
        ([((1, 1), (1, 1)), ((3, 8), (8, 1))], (3, 2, 2, 2)),
    ],
)
def test_shards_of_three_stand_next_to_shards_of_eight_on_24_devices_of_a_stage(strategies, axes):
    operators = tuple(
        Operator(
            Operation(MARK, (SPEC, SPEC), (SPEC, SPEC), {"mark": operator_mark("MatMul", number, Side.IN, strategy)}),
            (0, 1),
            (0, 1),
        )
        for number, strategy in enumerate(strategies)
    )
    config = ParallelConfig(
        parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL, device_num=48, pipeline_stages=2, dataset_strategy="full_batch"
    )
    assert stage_axes(OperatorGraph((SPEC, SPEC), operators, (), ()), config) == axes
    assert stage_mesh(1, axes).shape == axes
    assert stage_mesh(1, axes).ranks == range(24, 48)


def test_two_stages_of_six_devices_train_as_one_device():
    environ = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=12", "JAX_PLATFORMS": "cpu"}
    job = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("two_stages_of_six.py"))],
        env=environ,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert job.returncode == 0, job.stderr[-3000:]
    assert "all is well" in job.stdout
