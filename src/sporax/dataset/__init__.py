"""The input pipeline: `mindspore.dataset`.

A dataset describes where rows come from and what happens to them; iterators read it. See docs/dataset.md.
"""

from sporax.dataset import config, transforms, vision
from sporax.dataset._batching import BatchInfo
from sporax.dataset._dataset import Dataset
from sporax.dataset._dataset import zip_datasets as zip
from sporax.dataset._sources_memory import GeneratorDataset, NumpySlicesDataset
from sporax.dataset._sources_vision import FashionMnistDataset, KMnistDataset, MnistDataset
from sporax.dataset.samplers import (
    DistributedSampler,
    IterSampler,
    PKSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    SubsetSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchInfo",
    "Dataset",
    "DistributedSampler",
    "FashionMnistDataset",
    "GeneratorDataset",
    "IterSampler",
    "KMnistDataset",
    "MnistDataset",
    "NumpySlicesDataset",
    "PKSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "SubsetSampler",
    "WeightedRandomSampler",
    "config",
    "transforms",
    "vision",
    "zip",
]
