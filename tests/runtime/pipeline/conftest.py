"""One small pipeline for all tests of this folder: two stages of two devices, planned and compiled once."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "lowering" / "pipeline"))

from small_pipelines import ARGUMENTS, MICRO, ingested, training

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.hardware import load_profile
from sporax.planner import make_plan
from sporax.runtime.pipeline.planning import plan_pipeline
from sporax.runtime.pipeline.runner import compile_pipeline

STAGES, DEVICES = 2, 4


@pytest.fixture(scope="session")
def settings():
    """``settings(**more)``: of a pipeline of two stages."""

    def make(**more):
        config = {
            "device_num": DEVICES,
            "pipeline_stages": STAGES,
            "parallel_mode": "semi_auto_parallel",
            "pipeline_scheduler": "1f1b",
        }
        return PlanSettings(ParallelConfig(**{**config, **more}))

    return make


@pytest.fixture(scope="session")
def plan(settings):
    """``plan(step, **config)``: a planned pipeline; ``plan_of`` plans its chunks."""

    def make(
        step=None, whole=frozenset(), plan_of=make_plan, num_updated=2, hosts=lambda pipeline: frozenset(), **config
    ):
        graph = ingested(step or training(), num_updated=num_updated)
        return plan_pipeline(graph, whole, settings(**config), load_profile("cpu"), plan_of, hosts)

    return make


@pytest.fixture(scope="session")
def planned(plan):
    """The training step of two products."""
    return plan()


@pytest.fixture(scope="session")
def compiled(planned, settings):
    """Its programs."""
    return compile_pipeline(planned, settings().parallel)


@pytest.fixture(scope="session")
def expected():
    """What the step gives on one device."""
    return [np.asarray(result) for result in training(micro=MICRO)(*ARGUMENTS)]
