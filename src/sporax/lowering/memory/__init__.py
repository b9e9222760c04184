"""Changes of a step's jaxpr that make it need less memory or less time to compile, before it is planned or compiled.

The facade leaves *tags* while it traces: scopes in the name stack, and `KeptMark`s. The passes here read them:

    tags             how recomputation and offload are written in a name stack
    flat             calls written out in their caller's place, the form that the passes work on
    recompute        the backward pass computes again what the forward pass need not keep
    repeated_blocks  runs of equal equations become one body in a loop
    stacked_arguments  Parameters of such blocks are taken and returned as stacks, and updated as one
    read_marks       variables that a trace read become arguments of its program
    rewrite          the passes in their order, as one function
    notes            what plans say of all this
"""
