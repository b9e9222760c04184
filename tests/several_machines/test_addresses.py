"""Which address a job uses on machines whose names and interfaces differ: the right one, or one line that says what to set."""

import re
import sys
from pathlib import Path

import pytest

STEPS = Path(__file__).parent / "programs" / "steps.py"
QUERY = """
import sys
from sporax.base.errors import SporaxValueError
from sporax.cluster import ports
try:
    print(ports.address_for_others(sys.argv[1]))
except SporaxValueError as error:
    print(error)
"""


def address_for_others(machine, host: str) -> str:
    return machine.run([sys.executable, "-c", QUERY, host]).stdout.strip()


def like_debian(made) -> None:
    """Each machine knows itself by a loopback address, as Debian's installer writes it."""
    for machine in made:
        others = [f"{other.address} {other.name}" for other in made if other is not machine]
        machine.set_hosts(["127.0.0.1 localhost", f"127.0.1.1 {machine.name}", *others])


def add_interface(machine, address: str) -> None:
    machine.run(["ip", "tuntap", "add", "eth1", "mode", "tap"])
    machine.run(["ip", "address", "add", f"{address}/24", "dev", "eth1"])
    machine.run(["ip", "link", "set", "eth1", "up"])


def test_a_machine_whose_name_leads_to_itself_is_known_by_its_interface(make_machines):
    made = make_machines(2)
    like_debian(made)
    assert address_for_others(made[0], "node0") == made[0].address
    # To others the name leads there anyway, and an address is what it is.
    assert address_for_others(made[1], "node0") == "node0"
    assert address_for_others(made[0], f"[{made[0].address_6}]") == made[0].address_6
    assert address_for_others(made[0], "127.0.0.1") == "127.0.0.1"
    add_interface(made[0], "10.78.0.10")
    assert address_for_others(made[0], "node0") == (
        "For 'master_addr', the name must lead to an address that the other nodes reach, but 'node0' leads to 127.0.1.1 here "
        "(see /etc/hosts). Set --master_addr (or MS_SCHED_HOST) to one of this machine's addresses: "
        "10.77.0.10, 10.78.0.10, fd77::10."
    )
    # Another machine's name that leads to this one is a mistake, whatever it was meant to be.
    made[1].set_hosts(["127.0.0.1 localhost node0"])
    assert "'node0' leads to 127.0.0.1 here, which is this machine (node1)" in address_for_others(made[1], "node0")


def test_a_name_that_gloo_cannot_offer_ends_the_job_with_the_line_to_write(make_machines, start_job):
    made = make_machines(2)
    like_debian(made)
    job = start_job(made, 2, STEPS, 3, 0, -1, master_addr="node0")
    assert job.codes() == [1, 1], job.output()
    assert re.search(
        r"Write '10\.77\.0\.1[01] node[01]' into /etc/hosts of this machine, in place of '127", job.output()
    )
    assert not any(machine.processes() for machine in made)


@pytest.mark.full
@pytest.mark.parametrize("master", ["[fd77::10]", pytest.param("node0", marks=pytest.mark.soak)])
def test_two_interfaces_and_ipv6(make_machines, start_job, master):
    """The first machine has an interface that leads nowhere; its name leads to the other one."""
    made = make_machines(2)
    add_interface(made[0], "10.78.0.10")
    job = start_job(made, 2, STEPS, 2, 0, -1, master_addr=master)
    assert job.codes() == [0, 0], job.output()
    assert len(re.findall(r"step 1 of rank [01]", job.output())) == 2
