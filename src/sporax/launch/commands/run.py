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
    flags = {NO_CACHE: chosen.no_cache, VERBOSE: chosen.verbose, RESUME: chosen.resume, VERIFY_PLAN: chosen.verify_plan}
    values = {PROFILE_STEPS: chosen.profile_steps, VERIFY_STEPS: chosen.verify_steps}
    folder = {PROFILE: os.path.abspath(chosen.profile)} if chosen.profile else {}
    # Ranks inherit them.
    os.environ.update({name: str(int(flag)) for name, flag in flags.items() if flag} | folder)
    os.environ.update({name: str(value) for name, value in values.items() if value})
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
