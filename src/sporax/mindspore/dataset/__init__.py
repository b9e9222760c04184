"""The input pipeline: `mindspore.dataset`.

A dataset describes where rows come from and what happens to them; iterators read it. See docs/dataset.md.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes

_PACKAGES = "audio config debug text transforms vision"
_HOMES = {
    **{name: f"{__name__}.{name}" for name in _PACKAGES.split()},
    **homes("sporax.mindspore.dataset._cache", "DatasetCache"),
    **homes("sporax.mindspore.dataset._callbacks", "DSCallback"),
    # From the module that adds what the steps of a Dataset make.
    "Dataset": "sporax.mindspore.dataset._subclasses:Dataset",
    "zip": "sporax.mindspore.dataset._subclasses:zip_datasets",
    **homes("sporax.mindspore.dataset._json_pipelines", "compare deserialize serialize show"),
    **homes("sporax.mindspore.dataset._nodes.batches", "BatchInfo"),
    **homes("sporax.mindspore.dataset._refused", "TransferDataset"),
    **homes(
        "sporax.mindspore.dataset._sources.arrays",
        """
        Cifar10Dataset Cifar100Dataset FakeImageDataset PhotoTourDataset SemeionDataset STL10Dataset SVHNDataset
        USPSDataset
        """,
    ),
    **homes(
        "sporax.mindspore.dataset._sources.audio",
        """
        CMUArcticDataset GTZANDataset LibriTTSDataset LJSpeechDataset SpeechCommandsDataset TedliumDataset
        YesNoDataset
        """,
    ),
    **homes("sporax.mindspore.dataset._sources.boxes", "CocoDataset KITTIDataset VOCDataset WIDERFaceDataset"),
    **homes("sporax.mindspore.dataset._sources.clue", "CLUEDataset"),
    **homes("sporax.mindspore.dataset._sources.file_sampling", "Shuffle"),
    **homes(
        "sporax.mindspore.dataset._sources.images",
        """
        Caltech256Dataset Food101Dataset ImageFolderDataset LSUNDataset OmniglotDataset Places365Dataset
        RenderedSST2Dataset SUN397Dataset
        """,
    ),
    **homes("sporax.mindspore.dataset._sources.memory", "GeneratorDataset NumpySlicesDataset"),
    **homes("sporax.mindspore.dataset._sources.mindrecord", "MindDataset"),
    **homes(
        "sporax.mindspore.dataset._sources.mnist",
        """
        EMnistDataset FashionMnistDataset KMnistDataset MnistDataset QMnistDataset
        """,
    ),
    **homes(
        "sporax.mindspore.dataset._sources.pairs",
        """
        CityscapesDataset DIV2KDataset FlickrDataset SBDataset SBUDataset
        """,
    ),
    **homes(
        "sporax.mindspore.dataset._sources.people",
        """
        Caltech101Dataset CelebADataset Flowers102Dataset LFWDataset ManifestDataset
        """,
    ),
    **homes("sporax.mindspore.dataset._sources.records", "PaddedDataset RandomDataset TFRecordDataset"),
    **homes("sporax.mindspore.dataset._sources.schema", "Schema"),
    **homes("sporax.mindspore.dataset._sources.text", "CSVDataset TextFileDataset"),
    **homes(
        "sporax.mindspore.dataset._sources.texts",
        """
        AGNewsDataset AmazonReviewDataset CoNLL2000Dataset DBpediaDataset EnWik9Dataset IMDBDataset
        PennTreebankDataset SogouNewsDataset SQuADDataset SST2Dataset UDPOSDataset WikiTextDataset YahooAnswersDataset
        YelpReviewDataset
        """,
    ),
    **homes("sporax.mindspore.dataset._sources.translations", "IWSLT2016Dataset IWSLT2017Dataset Multi30kDataset"),
    **homes(
        "sporax.mindspore.dataset._subclasses",
        """
        BatchDataset BucketBatchByLengthDataset ConcatDataset FilterDataset MapDataset MappableDataset
        PaddedBatchDataset ProjectDataset RenameDataset RepeatDataset ShuffleDataset SkipDataset SyncWaitDataset
        TakeDataset ZipDataset
        """,
    ),
    **homes(
        "sporax.mindspore.dataset.samplers",
        """
        DistributedSampler IterSampler PKSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler
        SubsetSampler WeightedRandomSampler
        """,
    ),
}
_UNLISTED = {
    "WaitedDSCallback": "sporax.mindspore.train.callback._waited:WaitedDSCallback",  # of a layer above
    "context": "sporax.mindspore.context",  # loads JAX, which reading data does not need
}

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES, _UNLISTED)
