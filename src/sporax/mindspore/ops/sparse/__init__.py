"""Operators on sparse matrices: `COOTensor`, `CSRTensor`, and the tuples of Tensors that some primitives take for them.

`kernels` computes on the dense parts, with gathers and sums over segments; `functions` are the public functions and
the methods of the classes. What has a fixed number of entries runs inside compiled steps and has derivatives in the
values. Sums and products of two sparse matrices have entries where the operands' coordinates say, so those must be known
(constants of the step, or outside of it); the values need not be.
"""

from sporax.mindspore.ops.sparse import functions, kernels
