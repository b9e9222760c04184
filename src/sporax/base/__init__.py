"""What every package stands on and what knows no tensor: errors, JSON documents, atomic files, units, tables.

MindSpore's side finds here what is below, and errors, lazy members and names in the modules named after them.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names as _lazy_names  # not in the place of the module

if TYPE_CHECKING:
    from sporax.base import progress, update_rules
    from sporax.base.atomic_file import atomic_write
    from sporax.base.collector import gc_paused
    from sporax.base.documents import MalformedError, convert, decode
    from sporax.base.identity import ByIdentity

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = _lazy_names(__name__)
