"""JAX's persistent cache: on by default, off where somebody says so, and never a reason to fail."""

from pathlib import Path

import jax
import pytest

from sporax.cluster.environment import NO_CACHE
from sporax.runtime.process import compilation_cache


@pytest.fixture
def turn_on(monkeypatch, tmp_path, without_cache_of_jax):
    """Turn the cache on in a process with this environment; the settings that it makes."""

    def turn(home=tmp_path / "home", **environ):
        settings = {}
        monkeypatch.setattr(jax.config, "update", settings.__setitem__)
        monkeypatch.delenv(NO_CACHE, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        compilation_cache.turn_on.__wrapped__()
        return settings

    return turn


@pytest.mark.parametrize("said", ["", "0"])
def test_programs_are_kept_in_the_users_cache_directory(turn_on, tmp_path, said):
    settings = turn_on(**{NO_CACHE: said})
    directory = Path(settings["jax_compilation_cache_dir"])
    assert directory.is_dir()
    assert directory.parent == tmp_path / "home" / "sporax"
    assert 0 < settings["jax_persistent_cache_min_compile_time_secs"] < 1


def test_the_environment_turns_it_off(turn_on, tmp_path):
    assert turn_on(**{NO_CACHE: "1"}) == {}
    assert not (tmp_path / "home").exists()


def test_a_home_that_cannot_be_written_to_means_no_cache(turn_on, tmp_path):
    (tmp_path / "file").write_text("")
    assert turn_on(home=tmp_path / "file") == {}


def test_the_users_own_cache_stays(turn_on, monkeypatch):
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", "/elsewhere", raising=False)
    assert turn_on() == {}


def test_processors_with_other_instructions_have_a_directory_of_their_own(monkeypatch):
    names = []
    for lines in ("flags : sse avx512\n", "model : x\nflags : sse avx512\n", "flags : sse\n"):
        monkeypatch.setattr(Path, "read_text", lambda self, lines=lines: lines)
        names.append(compilation_cache._directory().name)
    assert names[0] == names[1] != names[2]
