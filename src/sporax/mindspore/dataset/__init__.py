"""The input pipeline: `mindspore.dataset`.

A dataset describes where rows come from and what happens to them; iterators read it. See docs/dataset.md.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_PACKAGES = "audio config debug text transforms vision"
_HOMES = {name: f"{__name__}.{name}" for name in _PACKAGES.split()} | homes_in(
    __name__,
    """
    _cache: DatasetCache
    _callbacks: DSCallback
    _dataset: BatchInfo
    _json: compare deserialize serialize show
    _steps: Dataset
    _steps.batches: BatchDataset BucketBatchByLengthDataset PaddedBatchDataset
    _steps.ends: MappableDataset SourceDataset TransferDataset
    _steps.maps: MapDataset
    _steps.rows: FilterDataset RepeatDataset ShuffleDataset SkipDataset SyncWaitDataset TakeDataset ConcatDataset
        ProjectDataset RenameDataset ZipDataset zip=zip_datasets
    _sources.arrays: Cifar10Dataset Cifar100Dataset FakeImageDataset PhotoTourDataset SemeionDataset STL10Dataset
        SVHNDataset USPSDataset
    _sources.audio: CMUArcticDataset GTZANDataset LibriTTSDataset LJSpeechDataset SpeechCommandsDataset TedliumDataset
        YesNoDataset
    _sources.boxes: CocoDataset KITTIDataset VOCDataset WIDERFaceDataset
    _sources.images: Caltech256Dataset EMnistDataset FashionMnistDataset KMnistDataset MnistDataset QMnistDataset Food101Dataset
        ImageFolderDataset LSUNDataset OmniglotDataset Places365Dataset RenderedSST2Dataset SUN397Dataset
    _sources.memory: GeneratorDataset NumpySlicesDataset
    _sources.mindrecord: MindDataset
    _sources.people: Caltech101Dataset CelebADataset Flowers102Dataset LFWDataset ManifestDataset CityscapesDataset
        DIV2KDataset FlickrDataset SBDataset SBUDataset
    _sources.records: PaddedDataset RandomDataset TFRecordDataset
    _sources.tfrecord: Schema
    _sources.text: CSVDataset TextFileDataset CLUEDataset LineReader
    _sources.texts: AGNewsDataset AmazonReviewDataset CoNLL2000Dataset DBpediaDataset EnWik9Dataset IMDBDataset
        PennTreebankDataset SogouNewsDataset SQuADDataset SST2Dataset UDPOSDataset WikiTextDataset YahooAnswersDataset
        YelpReviewDataset IWSLT2016Dataset IWSLT2017Dataset Multi30kDataset
    samplers: DistributedSampler IterSampler PKSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler
        Shuffle SubsetSampler WeightedRandomSampler
    """,
)
_UNLISTED = {
    **homes_in(__name__, "_iterators: _set_training_dataset _get_training_dataset _reset_training_dataset"),
    "WaitedDSCallback": "sporax.mindspore.train.callback._waited:WaitedDSCallback",  # of a layer above
    "context": "sporax.mindspore.context",  # loads JAX, which reading data does not need
}

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES, _UNLISTED)
