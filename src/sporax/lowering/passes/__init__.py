"""Changes of a step's jaxpr that make it need less memory or less time to compile, before it is planned or compiled.

The facade leaves *tags* while it traces (`lowering.marks.tags`), and `SavedMark`s. The passes here read them. They work on flat
programs, calls written out in their caller's place (`lowering.rewriter`):

    pass_tags        the tags, and compiler options that go with them
    pass_order       the passes in their order, as one function
    recompute        the backward pass computes again what the forward pass need not keep; what plans say of it
    repeat           runs of equal equations become one body in a loop, and their Parameters one stack
    host             what is computed on the host or kept there and in files
    loop_constants   loops make what differentiation took out of them and nothing else is needed for
    uneven_tables    tables whose rows are split into parts of different sizes
    rank_sums        numbers that a program combines over ranks by itself
    reused_collectives   equal collectives become calls of one function
    checksums, varying   what a program computes, value by value; what differs from rank to rank

Names below are loaded when they are first used: most programs are compiled without any pass.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.lowering.passes import pass_tags
    from sporax.lowering.passes.checksums import Checksums
    from sporax.lowering.passes.host.row_updates import row_update
    from sporax.lowering.passes.pass_order import rewritten, rewritten_with_stacks, seen_into
    from sporax.lowering.passes.pass_tags import SAVED_IN_FILES
    from sporax.lowering.passes.reused_collectives import with_reuse
    from sporax.lowering.passes.uneven_tables import Blocked
    from sporax.lowering.passes.varying import DIFFERENT, EQUAL, GRADIENT, NUMBER, labels_of_results

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
