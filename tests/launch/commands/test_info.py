import sporax
from sporax.launch.commands.info import packages_by_group


def test_packages_by_group():
    lines = [
        "numpy>=2.0",
        "jax[cuda13]<0.12,>=0.10; extra == 'cuda'",
        'ruff>=0.12; python_version > "3" and extra == "dev"',
    ]
    assert packages_by_group(lines) == {"required": ["numpy"], "cuda": ["jax"], "dev": ["ruff"]}


def test_info_reports_versions_and_devices(run):
    done = run("info", JAX_PLATFORMS="cpu")
    assert done.returncode == 0
    assert f"sporax {sporax.__version__}" in done.stdout
    assert "required: " in done.stdout
    assert "jax 0." in done.stdout
    assert "devices: 1 x cpu" in done.stdout


def test_no_devices(run):
    done = run("info", JAX_PLATFORMS="no_such_platform")
    assert done.returncode == 1
    assert "devices: none, because JAX says" in done.stdout


def test_what_one_process_does_with_several_devices(run):
    done = run("info", XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert (
        "one process uses all 4 in data, semi-automatic and automatic parallelism, and one in STAND_ALONE"
        in done.stdout
    )
