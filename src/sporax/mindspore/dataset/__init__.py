"""The input pipeline: `mindspore.dataset`.

A dataset describes where rows come from and what happens to them; iterators read it. See docs/dataset.md.
"""

from typing import TYPE_CHECKING, Any

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.dataset import _callbacks, audio, config, debug, text, transforms, vision
from sporax.mindspore.dataset._cache import DatasetCache
from sporax.mindspore.dataset._callbacks import DSCallback
from sporax.mindspore.dataset._dataset import Dataset
from sporax.mindspore.dataset._dataset import zip_datasets as zip
from sporax.mindspore.dataset._json_pipelines import compare, deserialize, serialize, show
from sporax.mindspore.dataset._nodes.batches import BatchInfo
from sporax.mindspore.dataset._refused import TransferDataset
from sporax.mindspore.dataset._sources.arrays import (
    Cifar10Dataset,
    Cifar100Dataset,
    FakeImageDataset,
    PhotoTourDataset,
    SemeionDataset,
    STL10Dataset,
    SVHNDataset,
    USPSDataset,
)
from sporax.mindspore.dataset._sources.audio import (
    CMUArcticDataset,
    GTZANDataset,
    LibriTTSDataset,
    LJSpeechDataset,
    SpeechCommandsDataset,
    TedliumDataset,
    YesNoDataset,
)
from sporax.mindspore.dataset._sources.boxes import CocoDataset, KITTIDataset, VOCDataset, WIDERFaceDataset
from sporax.mindspore.dataset._sources.clue import CLUEDataset
from sporax.mindspore.dataset._sources.file_sampling import Shuffle
from sporax.mindspore.dataset._sources.images import (
    Caltech256Dataset,
    Food101Dataset,
    ImageFolderDataset,
    LSUNDataset,
    OmniglotDataset,
    Places365Dataset,
    RenderedSST2Dataset,
    SUN397Dataset,
)
from sporax.mindspore.dataset._sources.memory import GeneratorDataset, NumpySlicesDataset
from sporax.mindspore.dataset._sources.mindrecord import MindDataset
from sporax.mindspore.dataset._sources.mnist import (
    EMnistDataset,
    FashionMnistDataset,
    KMnistDataset,
    MnistDataset,
    QMnistDataset,
)
from sporax.mindspore.dataset._sources.pairs import (
    CityscapesDataset,
    DIV2KDataset,
    FlickrDataset,
    SBDataset,
    SBUDataset,
)
from sporax.mindspore.dataset._sources.people import (
    Caltech101Dataset,
    CelebADataset,
    Flowers102Dataset,
    LFWDataset,
    ManifestDataset,
)
from sporax.mindspore.dataset._sources.records import PaddedDataset, RandomDataset, TFRecordDataset
from sporax.mindspore.dataset._sources.schema import Schema
from sporax.mindspore.dataset._sources.text import CSVDataset, TextFileDataset
from sporax.mindspore.dataset._sources.texts import (
    AGNewsDataset,
    AmazonReviewDataset,
    CoNLL2000Dataset,
    DBpediaDataset,
    EnWik9Dataset,
    IMDBDataset,
    PennTreebankDataset,
    SogouNewsDataset,
    SQuADDataset,
    SST2Dataset,
    UDPOSDataset,
    WikiTextDataset,
    YahooAnswersDataset,
    YelpReviewDataset,
)
from sporax.mindspore.dataset._sources.translations import IWSLT2016Dataset, IWSLT2017Dataset, Multi30kDataset
from sporax.mindspore.dataset._subclasses import (
    BatchDataset,
    BucketBatchByLengthDataset,
    ConcatDataset,
    FilterDataset,
    MapDataset,
    MappableDataset,
    PaddedBatchDataset,
    ProjectDataset,
    RenameDataset,
    RepeatDataset,
    ShuffleDataset,
    SkipDataset,
    SyncWaitDataset,
    TakeDataset,
    ZipDataset,
)
from sporax.mindspore.dataset.samplers import (
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
    "AGNewsDataset",
    "AmazonReviewDataset",
    "BatchInfo",
    "CLUEDataset",
    "CMUArcticDataset",
    "CSVDataset",
    "Caltech101Dataset",
    "Caltech256Dataset",
    "CelebADataset",
    "Cifar100Dataset",
    "Cifar10Dataset",
    "CityscapesDataset",
    "CoNLL2000Dataset",
    "CocoDataset",
    "DBpediaDataset",
    "DIV2KDataset",
    "DSCallback",
    "Dataset",
    "DatasetCache",
    "DistributedSampler",
    "EMnistDataset",
    "EnWik9Dataset",
    "FakeImageDataset",
    "FashionMnistDataset",
    "FlickrDataset",
    "Flowers102Dataset",
    "Food101Dataset",
    "GTZANDataset",
    "GeneratorDataset",
    "IMDBDataset",
    "IWSLT2016Dataset",
    "IWSLT2017Dataset",
    "ImageFolderDataset",
    "IterSampler",
    "KITTIDataset",
    "KMnistDataset",
    "LFWDataset",
    "LJSpeechDataset",
    "LSUNDataset",
    "LibriTTSDataset",
    "ManifestDataset",
    "MindDataset",
    "MnistDataset",
    "Multi30kDataset",
    "NumpySlicesDataset",
    "OmniglotDataset",
    "PKSampler",
    "PaddedDataset",
    "PennTreebankDataset",
    "PhotoTourDataset",
    "Places365Dataset",
    "QMnistDataset",
    "RandomDataset",
    "RandomSampler",
    "RenderedSST2Dataset",
    "SBDataset",
    "SBUDataset",
    "SQuADDataset",
    "SST2Dataset",
    "STL10Dataset",
    "SUN397Dataset",
    "SVHNDataset",
    "Sampler",
    "Schema",
    "SemeionDataset",
    "SequentialSampler",
    "Shuffle",
    "SogouNewsDataset",
    "SpeechCommandsDataset",
    "SubsetRandomSampler",
    "SubsetSampler",
    "TFRecordDataset",
    "TedliumDataset",
    "TextFileDataset",
    "TransferDataset",
    "UDPOSDataset",
    "USPSDataset",
    "VOCDataset",
    "WIDERFaceDataset",
    "WeightedRandomSampler",
    "WikiTextDataset",
    "YahooAnswersDataset",
    "YelpReviewDataset",
    "YesNoDataset",
    "MappableDataset",
    "ZipDataset",
    "TakeDataset",
    "SyncWaitDataset",
    "SkipDataset",
    "ShuffleDataset",
    "RepeatDataset",
    "RenameDataset",
    "ProjectDataset",
    "PaddedBatchDataset",
    "MapDataset",
    "FilterDataset",
    "ConcatDataset",
    "BucketBatchByLengthDataset",
    "BatchDataset",
    "audio",
    "compare",
    "config",
    "debug",
    "deserialize",
    "serialize",
    "show",
    "text",
    "transforms",
    "vision",
    "zip",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(
        __name__,
        {
            "WaitedDSCallback": "sporax.mindspore.train.callback._waited:WaitedDSCallback",  # of a layer above
            "context": "sporax.mindspore.context",  # loads JAX, which reading data does not need
        },
    )
