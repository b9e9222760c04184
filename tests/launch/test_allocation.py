"""Memory settings of ranks."""

from sporax.launch.allocation import allocation_settings


def test_large_buffers_stay_in_the_process():
    (text,) = allocation_settings({}).values()
    assert "glibc.malloc.hugetlb=1" in text
    assert all(name in text for name in ("mmap_threshold", "trim_threshold"))


def test_what_the_user_has_set_stays():
    text = allocation_settings({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0:glibc.pthread.rseq=1"})["GLIBC_TUNABLES"]
    assert text.startswith("glibc.malloc.hugetlb=0:glibc.pthread.rseq=1:glibc.malloc.mmap_threshold=")
    assert text.count("hugetlb") == 1
