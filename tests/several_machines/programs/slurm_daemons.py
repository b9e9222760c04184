"""Slurm of Debian's packages on some machines: `Slurm(machines, folder)` starts munged, slurmctld and a slurmd on each."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
_SECONDS = 60
_CONFIGURATION = """
ClusterName=tests
SlurmctldHost={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/tmp/munge.socket
StateSaveLocation=/tmp/slurmctld
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """Daemons, which end with their machines. All that they write is in each machine's own `/tmp`.

    Args:
        made: the machines.
        folder: one that they share, for the configuration and the key.
    """

    def __init__(self, made: Sequence[Any], folder: Path) -> None:
        nodes = "\n".join(f"NodeName={one.name} NodeAddr={one.address} CPUs=4 State=UNKNOWN" for one in made)
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(first=made[0].name, nodes=nodes))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        environ = {**os.environ, **self.variables}
        files = {"pid-file": "pid", "log-file": "log", "seed-file": "seed", "socket": "socket"}
        munged = [
            "munged",
            "--force",
            f"--key-file={key}",
            *(f"--{flag}=/tmp/munge.{name}" for flag, name in files.items()),
        ]
        for machine in made:
            (machine.folder / "tmp/slurmd").mkdir()
            done = machine.run(munged)
            assert done.returncode == 0, done.stdout
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environ}
        made[0].popen(["slurmctld", "-D", "-c"], **nowhere)
        for machine in made:
            machine.popen(["slurmd", "-D", "-N", machine.name], **nowhere)
        end = time.monotonic() + _SECONDS
        while (states := made[0].run(["sinfo", "-h", "-N", "-o", "%T"], env=environ).stdout.split()) != ["idle"] * len(
            made
        ):
            assert time.monotonic() < end, states
            time.sleep(0.2)
