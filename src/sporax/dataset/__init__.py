"""The input pipeline: `mindspore.dataset`.

A dataset describes where rows come from and what happens to them; iterators read it. See docs/dataset.md.
"""

from sporax.dataset import config, text, transforms, vision
from sporax.dataset._batching import BatchInfo
from sporax.dataset._dataset import Dataset
from sporax.dataset._dataset import zip_datasets as zip
from sporax.dataset._sources_images import Cifar10Dataset, Cifar100Dataset, ImageFolderDataset
from sporax.dataset._sources_memory import GeneratorDataset, NumpySlicesDataset
from sporax.dataset._sources_mnist import FashionMnistDataset, KMnistDataset, MnistDataset
from sporax.dataset._sources_text import CSVDataset, Shuffle, TextFileDataset
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
    "CSVDataset",
    "Cifar100Dataset",
    "Cifar10Dataset",
    "Dataset",
    "DistributedSampler",
    "FashionMnistDataset",
    "GeneratorDataset",
    "ImageFolderDataset",
    "IterSampler",
    "KMnistDataset",
    "MnistDataset",
    "NumpySlicesDataset",
    "PKSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Shuffle",
    "SubsetRandomSampler",
    "SubsetSampler",
    "TextFileDataset",
    "WeightedRandomSampler",
    "config",
    "text",
    "transforms",
    "vision",
    "zip",
]
