"""Memory settings of ranks."""

from sporax.launch.jobs.cores import allocation_settings


def test_large_buffers_stay_in_the_process():
    (text,) = allocation_settings({}).values()
    assert "glibc.malloc.hugetlb=1" in text
    assert all(name in text for name in ("mmap_threshold", "trim_threshold"))


def test_what_the_user_has_set_stays():
    text = allocation_settings({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0:glibc.pthread.rseq=1"})["GLIBC_TUNABLES"]
    assert text.startswith("glibc.malloc.hugetlb=0:glibc.pthread.rseq=1:glibc.malloc.mmap_threshold=")
    assert text.count("hugetlb") == 1


def test_one_process_has_the_memory_settings_of_ranks(run, write):
    script = write("train.py", "import os, sys\nprint(os.environ.get('GLIBC_TUNABLES'), sys.argv[1:])\n")
    own = "glibc.malloc.hugetlb=0"
    done = run("run", script, "--epochs", "2", GLIBC_TUNABLES=own, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{allocation_settings({'GLIBC_TUNABLES': own})['GLIBC_TUNABLES']} ['--epochs', '2']\n"


def test_one_process_that_computes_elsewhere_has_none(run, write):
    script = write("train.py", "import os\nprint(os.environ.get('GLIBC_TUNABLES'))\n")
    assert run("run", script, JAX_PLATFORMS="cuda").stdout == "None\n"
