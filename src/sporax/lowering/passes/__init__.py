"""Changes of a step's jaxpr that make it need less memory or less time to compile, before it is planned or compiled.

The facade leaves *tags* while it traces (`lowering.marks.tags`), and `SavedMark`s. The passes here read them. They work on flat
programs, calls written out in their caller's place (`lowering.rewriter`):

    pass_order       the passes in their order, as one function
    recompute        the backward pass computes again what the forward pass need not keep; what plans say of it
    repeat           runs of equal equations become one body in a loop, and their Parameters one stack
    host             what is computed on the host or kept there and in files
    uneven_tables    tables whose rows are split into parts of different sizes
    reused_collectives   equal collectives become calls of one function
    checksums, varying   what a program computes, value by value; what differs from rank to rank
"""
