import pytest

import sporax
from sporax.launch.commands.info import Accelerator, accelerator_lines, packages_by_group


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


@pytest.mark.parametrize(("platform", "package"), [("cuda", "sporax[cuda]"), ("tpu", "jax[tpu]")])
def test_a_platform_without_plugin_says_what_is_missing_and_what_to_install(run, platform, package):
    done = run("info", JAX_PLATFORMS=platform)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"\n{platform}: no plugin" in done.stdout
    assert f"pip install '{package}'" in done.stdout


def test_what_is_usable_and_what_ranks_exchange_data_with(run):
    lines = run("info", JAX_PLATFORMS="cpu").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[-3:]] == ["cuda", "tpu", "collectives between processes on cpu"]
    assert lines[-1].endswith(": gloo")


def cuda(plugin, driver):
    return Accelerator("cuda", ("cuda", "gpu"), "gpu", plugin, driver, "pip install 'sporax[cuda]'")


@pytest.mark.parametrize(
    ("plugin", "driver", "used", "expected"),
    [
        ("xla_cuda13", "/dev/nvidia0", ["gpu"], "cuda: usable (plugin xla_cuda13)"),
        ("xla_cuda13", "/dev/nvidia0", ["cpu"], "cuda: the plugin xla_cuda13 is installed, but JAX uses no device of it"),
        (None, "/dev/nvidia0", ["cpu"], "cuda: there is a device (/dev/nvidia0), but no plugin: pip install 'sporax[cuda]'"),
        ("xla_cuda13", None, ["cpu"], "cuda: the plugin xla_cuda13 is installed, but this machine shows no device: its driver must be installed"),
    ],
)  # fmt: skip
def test_plugin_driver_and_device_are_distinguished(plugin, driver, used, expected):
    first, *others = accelerator_lines([cuda(plugin, driver)], used)
    assert first == expected
    assert others == [f"collectives between processes on {used[0]}: {'NCCL' if used == ['gpu'] else 'gloo'}"]
