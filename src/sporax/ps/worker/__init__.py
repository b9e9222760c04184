"""What a worker keeps of the servers: connection, row cache, leases of steps."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.ps.worker import row_cache
    from sporax.ps.worker.row_cache import RowCache
    from sporax.ps.worker.server_connection import ServerConnection

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
