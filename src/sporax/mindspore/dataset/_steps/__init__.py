"""The steps of pipelines, by kind: each is a class with its checks, its columns, its size, and how it makes the rows of a pass.

All are loaded together, so that the methods of `Dataset` find them.
"""

from sporax.mindspore.dataset._dataset import Dataset as Dataset
from sporax.mindspore.dataset._steps import batches as batches, ends as ends, maps as maps, rows as rows
