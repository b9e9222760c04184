"""Random device matrices and layouts for property tests."""

from hypothesis import strategies as st

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout

SIZES = st.sampled_from([1, 2, 2, 2, 3, 4])


@st.composite
def device_matrices(draw, max_axes=4, shuffled=True):
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=max_axes)))
    matrix = DeviceMatrix(shape)
    names = tuple(f"a{axis}" for axis in range(len(shape))) if draw(st.booleans()) else ()
    ranks = draw(st.permutations(list(matrix.ranks))) if shuffled and draw(st.booleans()) else matrix.ranks
    return DeviceMatrix(shape, names, tuple(ranks))


@st.composite
def layouts(draw, matrices=None, max_dims=3):
    matrix = draw(device_matrices() if matrices is None else matrices)
    cuts = [() for _ in range(draw(st.integers(1, max_dims)))]
    for axis in draw(st.permutations(range(matrix.num_axes))):
        dim = draw(st.integers(-1, len(cuts) - 1))
        if dim >= 0:
            cuts[dim] = (*cuts[dim], axis)
    return Layout(matrix, tuple(cuts))


def tensor_shape(layout):
    """A small shape that the layout cuts evenly."""
    return tuple(2 * slices for slices in layout.split)
