"""Random streams."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.random import threefry
    from sporax.runtime.random.random_streams import Generator, KeySequence, key_of, key_on_host

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
