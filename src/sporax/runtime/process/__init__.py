"""Facts about this process: compilation cache, host allocator, living objects, dry run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sporax.runtime.process import dry_run, host_allocator, recorded_operators
