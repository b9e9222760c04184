"""`sporax run`: one process here, or a job of many ranks under a supervisor."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

from sporax.cluster.environment import NO_CACHE, PROFILE, PROFILE_STEPS, RESUME, VERBOSE, VERIFY_PLAN, VERIFY_STEPS
from sporax.launch import options, target
from sporax.launch.jobs import cores
from sporax.launch.jobs.cores import allocation_settings, only_process
from sporax.launch.jobs.launcher import launch
from sporax.launch.options import LaunchOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare msrun's flags with the defaults of `sporax run`."""
    options.add_arguments(parser, options.RUN_DEFAULTS)


def run(arguments: argparse.Namespace) -> int:
    """Run the target; returns its exit code."""
    return launch_or_execute(options.checked(arguments, options.RUN_DEFAULTS))


def launch_or_execute(chosen: LaunchOptions) -> int:
    """Run the target in this process when no number of workers is given, else launch the job."""
    if chosen.no_cache:
        os.environ[NO_CACHE] = "1"  # ranks inherit it
    if chosen.verbose:
        os.environ[VERBOSE] = "1"
    if chosen.resume:
        os.environ[RESUME] = "1"
    if chosen.profile:
        os.environ[PROFILE] = os.path.abspath(chosen.profile)
    if chosen.profile_steps:
        os.environ[PROFILE_STEPS] = chosen.profile_steps
    if chosen.verify_plan:
        os.environ[VERIFY_PLAN] = "1"
    if chosen.verify_steps:
        os.environ[VERIFY_STEPS] = str(chosen.verify_steps)
    if chosen.server_num:
        from sporax.launch.servers.ps_job import run_job  # needs the extra `ps`

        return run_job(chosen)
    if chosen.worker_num is not None:
        return launch(chosen)
    if chosen.local_devices is not None:
        os.environ.update(only_process(os.environ, chosen.local_devices))
    # Tunables of glibc exist on Linux only.
    if sys.platform == "linux" and cores.computes_on_cpu(os.environ):
        _restart_with(allocation_settings(os.environ))
    return target.execute(chosen.target)


def _restart_with(settings: Mapping[str, str]) -> None:
    """Let this process run its command line again unless it has these variables: the C library reads them only at its start."""
    if all(os.environ.get(name) == value for name, value in settings.items()):
        return
    os.environ.update(settings)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
