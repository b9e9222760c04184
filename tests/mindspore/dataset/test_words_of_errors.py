"""Errors are in MindSpore's words, after which scripts and their tests look; what was got is said as well."""

import json

import numpy as np
import pytest
import source_files

import sporax.mindspore.dataset as ds
from sporax.mindspore import Tensor
from sporax.mindspore.common import dtype as mstype
from sporax.mindspore.dataset import audio, config, text, transforms, vision

IMAGE = np.zeros((4, 5, 3), np.uint8)
ROWS = ds.NumpySlicesDataset([[1], [2]], ["x"])


def through(operation, value):
    return lambda: next(
        ds.GeneratorDataset([np.array(value)], ["x"]).map(operation, ["x"]).create_dict_iterator(output_numpy=True)
    )


def failing(value):
    raise KeyError("no such thing")


def batched(*results):
    return lambda: next(
        ds.NumpySlicesDataset(([1], [2]), ["x", "y"])
        .batch(1, per_batch_map=lambda x, y, info: results)
        .create_dict_iterator()
    )


WORDS = [
    (
        lambda: transforms.Compose([1]),
        TypeError,
        "transforms[0] is neither a transforms op (TensorOperation) nor a callable pyfunc.",
    ),
    (lambda: transforms.RandomOrder([]), ValueError, "transforms list can not be empty."),
    (lambda: transforms.TypeCast(), TypeError, "For 'TypeCast', missing a required argument: 'data_type'"),
    (lambda: vision.ToType(output_type=1), TypeError, "missing a required argument: 'data_type'"),
    (lambda: vision.Rescale(1, 2, 3), TypeError, "too many positional arguments"),
    (lambda: text.Vocab().ids_to_tokens(2), RuntimeError, "Vocab hasn't been initialized yet"),
    (lambda: text.Vocab().tokens_to_ids(["a"]), RuntimeError, "Vocab hasn't been initialized yet"),
    (
        lambda: vision.ToTensor()(IMAGE.astype(np.int64)),
        RuntimeError,
        "unsupported data type in [uint32, int64, uint64, string, bytes].",
    ),
    (through(vision.ToTensor(), IMAGE.astype(np.uint64)), RuntimeError, "Got uint64"),
    # Bad values of direct calls.
    (lambda: vision.HorizontalFlip()(IMAGE.astype(np.complex64)), TypeError, "cannot be converted into tensor."),
    (lambda: text.CaseFold()(np.ones(2, np.complex128)), TypeError, "cannot be converted into tensor."),
    (lambda: vision.Equalize()(IMAGE[:0]), RuntimeError, "has no data"),
    (lambda: vision.RandomResize(3)(IMAGE[:0]), RuntimeError, "has no data"),
    (lambda: vision.Erase(0, 0, 2, 2)(IMAGE[..., :1]), RuntimeError, "must have 3 channels"),
    (lambda: vision.Grayscale()(IMAGE[..., :2]), RuntimeError, "tensor in channel of (1, 3)"),
    (lambda: vision.RandomGrayscale(1.0)(np.arange(4)), RuntimeError, "at least two dimensions"),
    (lambda: vision.TenCrop(2)(np.arange(4)), RuntimeError, "at least two dimensions"),
    (lambda: vision.ToType("int32")(np.array(["x"])), RuntimeError, "strings cannot be cast to numbers"),
    (lambda: audio.Gain()(3), TypeError, "Input should be NumPy audio, got <class 'int'>."),
    (lambda: audio.Gain()("wave"), TypeError, "Input should be NumPy audio, got <class 'str'>."),
    # In the name of MindSpore's class. Transforms of text and of `transforms`, and ToType, take Tensors.
    (
        lambda: audio.Gain()(Tensor([1.0])),
        TypeError,
        "Input should be NumPy audio, got <class 'mindspore.common.tensor.Tensor'>.",
    ),
    (
        lambda: vision.RandomSharpness((0.2, 0.3))(Tensor(IMAGE)),
        TypeError,
        "Input should be NumPy or PIL image, got <class 'mindspore.common.tensor.Tensor'>.",
    ),
    (through(transforms.TypeCast("int32"), b"x"), RuntimeError, "does not support cast from bytes to int32"),
    (lambda: audio.AllpassBiquad(16000, 200.0)(np.arange(8)), RuntimeError, "in type of [float, double]"),
    (lambda: audio.LFilter([1.0], [1.0])(np.arange(8)), RuntimeError, "in type of [float, double]"),
    (lambda: config.set_error_samples_mode(False), TypeError, "is not of type [<enum 'ErrorSamplesMode'>]"),
    (batched({"a": 1}, [np.array(1)]), RuntimeError, "mismatched types returned from per_batch_map"),
    (
        lambda: ds.NumpySlicesDataset([1], num_parallel_workers=256),
        ValueError,
        "num_parallel_workers exceeds the boundary",
    ),
    (lambda: ds.MnistDataset(""), ValueError, "The folder  does not exist or is not a directory or permission denied!"),
    (lambda: ds.TextFileDataset("none.txt"), ValueError, "The following patterns did not match any files"),
    (lambda: ROWS.map(len, max_rowsize="3"), TypeError, "Argument max_rowsize with value 3 is not of type"),
    (lambda: ROWS.map(len, column_order=["x"]), ValueError, "The parameter 'column_order' had been deleted in map"),
    (lambda: ROWS.map([]), ValueError, "must not be empty"),
    (lambda: ROWS.map(vision.HWC2CHW), ValueError, "Parameter operations's element of method map should be a "),
    (lambda: ROWS.split([]), ValueError, "sizes cannot be empty"),
    (
        lambda: ds.NumpySlicesDataset([*range(5)]).split([0.15] * 5 + [0.25]),
        RuntimeError,
        "Sum of calculated split sizes 6 is not equal to dataset size 5",
    ),
    (lambda: next(iter(ROWS.skip(9) + ROWS)), ValueError, "There are no samples in the dataset number 0"),
    (lambda: vision.Invert()(), RuntimeError, "Input Tensor is not valid."),
    (lambda: ROWS.take(0), ValueError, "count should be either -1 or within the required interval of (0, 2147483647]"),
    (lambda: ROWS.sync_wait("a", 0), ValueError, "num_batch need to be greater than 0."),
    (lambda: ROWS.sync_wait("a").sync_wait("a"), RuntimeError, "Condition name is already in use"),
    (lambda: ROWS.sync_wait("a").shuffle(2), RuntimeError, "No shuffle after sync operators"),
    (lambda: ROWS.use_sampler(3), TypeError, "not an instance of a sampler"),
    (lambda: ds.SubsetSampler([1.5]), TypeError, "Type of indices element must be int, but got list[0]: 1.5"),
    (lambda: ds.WeightedRandomSampler(["a"]), TypeError, "type of weights element must be number"),
    (lambda: ds.WeightedRandomSampler((0.9, 0.8)), TypeError, "type of weights element must be number"),
    (lambda: ds.WeightedRandomSampler([]).parse(), RuntimeError, "weights vector must not be empty"),
    (lambda: ds.DistributedSampler(4, 0, offset=5), RuntimeError, "offset must be no more than num_shards(4)"),
    (
        lambda: next(iter(ds.NumpySlicesDataset([1], sampler=[7]))),
        RuntimeError,
        "Sample ID (7) is out of bound, expected range [0, 0]",
    ),
    (through(failing, [1]), RuntimeError, "Exception thrown from user defined Python function in dataset"),
    (through(failing, [1]), RuntimeError, "map operation: [PyFunc] failed."),
    (through(transforms.OneHot(3), [1.5]), RuntimeError, "Only support input of int type, but got: float64"),
    (through(transforms.Slice([5]), [1]), RuntimeError, "Index 5 is out of bounds."),
    (through(transforms.Slice([]), [1]), RuntimeError, "Both indices and slices can not be empty."),
    (lambda: transforms.Slice([[0, 1]]), TypeError, "Argument slice_option[0] with value [0, 1] is not of type"),
    (
        lambda: next(iter(ds.NumpySlicesDataset([1, 2], sampler=ds.WeightedRandomSampler([1, -0.4])))),
        RuntimeError,
        "WeightedRandomSampler: weights vector must not contain negative numbers, got: -0.4",
    ),
    (
        lambda: text.Vocab.from_dataset(ROWS, 23, top_k=1.2),
        TypeError,
        "Argument col[0] with value 23 is not of type [<class 'str'>]",
    ),
    (lambda: vision.write_png("x.png", 0), TypeError, "The input image is not of type"),
    (
        through(text.ToNumber(np.float32), "inf"),
        RuntimeError,
        "string input inf will be out of bounds if cast to float32",
    ),
    (through(text.ToNumber(np.float64), "-1.8e+308"), RuntimeError, "will be out of bounds if cast to float64"),
    (
        through(vision.PadToSize(5), np.zeros((28, 28, 3))),
        RuntimeError,
        "the target size to pad should be no less than the original image size",
    ),
    (
        through(vision.PadToSize(30, (5, 5)), np.zeros((28, 28, 3))),
        RuntimeError,
        "sum of offset and original image size should be no more than the target size",
    ),
    (
        lambda: ds.NumpySlicesDataset(([1], [2]), ["x", "y"]).batch(
            1, per_batch_map=lambda x, info: (x, x), input_columns="x", output_columns=["y", "z"]
        ),
        RuntimeError,
        "columns that are not involved in 'per_batch_map' should not be in output_columns",
    ),
    (through(failing, [1]), RuntimeError, "Python Call Stack:\nTraceback (most recent call last):"),
    (through(transforms.Concatenate(append=["a"]), [1]), RuntimeError, "input datatype does not match"),
    (through(transforms.Concatenate(), [[1]]), RuntimeError, "only 1D input supported"),
    (lambda: transforms.Concatenate(prepend=[[1]]), ValueError, "can only prepend 1D arrays."),
    (lambda: transforms.TypeCast("junk"), TypeError, "Argument data_type with value junk is not of type"),
    (through(transforms.Fill("a"), [1]), RuntimeError, "fill_value and the input tensor must be of the same data type"),
    (through(text.ToNumber(np.int32), "a8f"), RuntimeError, 'it is invalid to convert "a8f" to a number'),
    (through(text.ToNumber(np.float16), "1e6"), RuntimeError, "outside of valid float16 range"),
    (through(text.ToNumber(np.int8), "300"), RuntimeError, "string input 300 will be out of bounds if cast to int8"),
    (
        through(text.Lookup(text.Vocab.from_list(["a"])), "b"),
        RuntimeError,
        "doesn't exist in vocab and no unknown token is specified.",
    ),
    (lambda: audio.AllpassBiquad(10**21, 100), ValueError, "interval of [-2147483648, 0) and (0, 2147483647]"),
    (
        lambda: audio.Vol(-1.5, audio.GainType.POWER),
        ValueError,
        "Input gain is not within the required interval of (0, 16777216]",
    ),
    (
        lambda: audio.linear_fbanks(10**11, 0, 10, 2, 16),
        ValueError,
        "Input n_freqs is not within the required interval",
    ),
    (lambda: audio.Spectrogram(200, 300), ValueError, "no more than n_fft, but got win_length: 300 and n_fft: 200."),
    (lambda: vision.Affine(1.0, [1, 1, 1], 1.0, 0), TypeError, "The length of translate should be 2"),
    (lambda: vision.Normalize([1.0], [1.0, 2.0]), ValueError, "Length of mean and std must be equal"),
    (
        lambda: vision.RandomResizedCrop(2, scale=(1, 0.5)),
        ValueError,
        "scale should be in (min,max) format. Got (max,min).",
    ),
    (lambda: vision.Solarize((12, 1)), ValueError, "threshold must be in order of (min, max)."),
    (lambda: vision.RandomSelectSubpolicy([[]]), ValueError, "policy[0] can not be empty."),
    (lambda: vision.Crop([0], 2), TypeError, "Coordinates should be a list/tuple (y, x) of length 2."),
    (lambda: vision.HWC2CHW()([IMAGE]), TypeError, "Input should be NumPy or PIL image, got <class 'list'>."),
    (
        lambda: vision.HorizontalFlip()(IMAGE[0, 0]),
        RuntimeError,
        "the image tensor should have at least two dimensions.",
    ),
    (
        lambda: vision.Invert()(IMAGE.astype(str)),
        RuntimeError,
        "data type of image tensor does not match the requirement of operator.",
    ),
    (lambda: vision.RandomCrop(9)(IMAGE), RuntimeError, "crop size is bigger than the image dimensions 4 x 5"),
    (lambda: vision.get_image_size(3), TypeError, "or <class 'PIL.Image.Image'>, but got: <class 'int'>."),
    (lambda: vision.read_file("none.txt"), RuntimeError, "Invalid file path, none.txt does not exist."),
]


TENSOR_OR_ARRAY = "<class 'numpy.ndarray'> or <class 'mindspore.common.tensor.Tensor'>"
OF_FILES = [
    (
        lambda: vision.encode_png(IMAGE, 6.0),
        "Input compression_level is not of type <class 'int'>, but got: <class 'float'>.",
    ),
    (lambda: vision.write_jpeg("x", IMAGE, "6"), "Input quality is not of type <class 'int'>, but got: <class 'str'>."),
    (lambda: vision.encode_jpeg("x"), f"Input image is not of type {TENSOR_OR_ARRAY}, but got: <class 'str'>."),
    (lambda: vision.write_file("x", 0), f"Input data is not of type {TENSOR_OR_ARRAY}, but got: <class 'int'>."),
    (lambda: vision.read_image("x", "0"), "Input mode is not of type <enum 'ImageReadMode'>, but got: <class 'str'>."),
    (lambda: ds.Schema(1), "path: 1 is not string"),
    (
        lambda: vision.ToPIL()([1]),
        "The input image should be of type numpy.ndarray or PIL.Image.Image. Got <class 'list'>.",
    ),
    (lambda: vision.Resize(2)(None), "Input should be NumPy or PIL image, got <class 'NoneType'>."),
    (
        lambda: text.ToNumber("int8")([["1", None]]),
        "Invalid user input. Got <class 'list'>: [['1', None]], cannot be converted",
    ),
    (
        lambda: text.WhitespaceTokenizer()({"a": 1}),
        "Invalid user input. Got <class 'dict'>: {'a': 1}, cannot be converted",
    ),
    (lambda: audio.create_dct(4, "5"), "n_mels with value 5 is not of type <class 'int'>, but got <class 'str'>."),
]
OF_VALUES = [
    (
        lambda: vision.encode_png(IMAGE / 2),
        RuntimeError,
        "EncodePng: The type of the image data should be UINT8, but got float64.",
    ),
    (
        lambda: vision.write_jpeg("x", IMAGE[None]),
        RuntimeError,
        "WriteJpeg: The image has invalid dimensions. It should have two or three dimensions, but got 4 dimensions.",
    ),
    (
        lambda: vision.encode_jpeg(IMAGE[..., :2]),
        RuntimeError,
        "EncodeJpeg: The image has invalid channels. It should have 1 or 3 channels, but got 2 channels.",
    ),
    (lambda: vision.encode_png(IMAGE[:0]), RuntimeError, "EncodePng: Load the image tensor failed."),
    (
        lambda: vision.write_file("x", IMAGE[0] / 2),
        RuntimeError,
        "WriteFile: The type of the elements of data should be UINT8, but got float64.",
    ),
    (
        lambda: vision.write_file("x", IMAGE[0]),
        RuntimeError,
        "WriteFile: The data has invalid dimensions. It should have only one dimension, but got 2 dimensions.",
    ),
    (lambda: vision.ToPIL()(IMAGE[None]), ValueError, "The dimension of input image should be 2 or 3. Got 4."),
    (
        lambda: vision.ToPIL()(np.zeros((2, 2, 5), np.uint8)),
        ValueError,
        "The channel of input image should not exceed 4. Got 5.",
    ),
    (
        lambda: text.SlidingWindow(3, -100)(np.arange(4)),
        RuntimeError,
        "SlidingWindow: The parameter axis supports 0 or -1 only for now, but got -100.",
    ),
    (
        lambda: text.ToNumber("int8")("137"),
        RuntimeError,
        "ToNumber: string input 137 will be out of bounds if cast to int8. The valid range is: [-128, 127].",
    ),
    (lambda: text.Ngram(2)(np.array(b"a")), RuntimeError, "Ngram: input is not a 1D data with string datatype."),
    (
        lambda: vision.MixUpBatch()(IMAGE[None], np.array([["a"]])),
        RuntimeError,
        "MixUpBatch: invalid label type, label must be in a numeric type",
    ),
    (
        lambda: transforms.Mask(transforms.Relational.EQ, "3", mstype.string)(np.array(["3"])),
        RuntimeError,
        "Mask: Only supports bool or numeric datatype for generated mask type, but got:string",
    ),
    (lambda: audio.create_dct(0, 5), ValueError, "n_mfcc must be greater than 0, but got 0."),
    (
        lambda: audio.MelSpectrogram(f_min=2.0, f_max=1.0),
        ValueError,
        "f_max should be greater than or equal to f_min, but got f_min: 2.0 and f_max: 1.0.",
    ),
    (
        lambda: audio.MelSpectrogram(f_min=60.0, sample_rate=100),
        ValueError,
        "MelSpectrogram: sample_rate // 2 should be greater than f_min when f_max is set to None, but got f_min: 60.0.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), [(call, TypeError, words) for call, words in OF_FILES] + OF_VALUES)
def test_what_is_handed_over_is_judged_in_mindspores_words(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize("make", [ds.STL10Dataset, ds.SVHNDataset, ds.SBUDataset, ds.Flowers102Dataset])
def test_files_of_a_folder_are_looked_for_at_once(make, tmp_path):
    more, words = (), "The file .* does not exist or permission denied!"
    if make is ds.Flowers102Dataset:
        more, words = (
            ("Classification",),
            "The folder .*/jpg does not exist or is not a directory or permission denied!",
        )
    with pytest.raises(ValueError, match=words):
        make(str(tmp_path), *more)


def test_categories_of_things_must_be_known(tmp_path):
    notes = tmp_path / "a.json"
    thing = {"image_id": 1, "category_id": 7, "bbox": [0, 0, 1, 1], "iscrowd": 0}
    content = {
        "images": [{"id": 1, "file_name": "a"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [thing],
    }
    notes.write_text(json.dumps(content))
    with pytest.raises(RuntimeError, match="the attribute of 'category_id': 7 is missing"):
        len(ds.CocoDataset(str(tmp_path), str(notes)))
    with pytest.raises(ValueError, match="CocoDataset doesn't support PKSampler"):
        ds.CocoDataset(str(tmp_path), str(notes), sampler=ds.PKSampler(1))
    notes.write_text("{")
    with pytest.raises(RuntimeError, match="Invalid annotation file, Coco Dataset annotation file: "):
        len(ds.CocoDataset(str(tmp_path), str(notes)))


# Recorded with the wheel of MindSpore 2.10.
EXACT = [
    (lambda: vision.Posterize(9), ValueError, "Input bits is not within the required interval of [0, 8]."),
    (lambda: vision.RandomPosterize((0, 4)), ValueError, "Input is not within the required interval of [1, 8]."),
    (lambda: vision.Resize(0), ValueError, "Input is not within the required interval of [1, 16777216]."),
    (lambda: vision.Resize(None), TypeError, "Size should be a single integer or a list/tuple (h, w) of length 2."),
    (lambda: vision.Resize(3, None), KeyError, "Interpolation should not be None"),
    (
        lambda: vision.Pad((1, -1)),
        ValueError,
        "Input pad_value is not within the required interval of [0, 2147483647].",
    ),
    (lambda: vision.Pad(1, [1]), TypeError, "fill_value should be a single integer or a 3-tuple."),
    (lambda: vision.AdjustGamma(-1), ValueError, "Input is not within the required interval of [0, 16777216]."),
    (lambda: vision.RandomAffine([1]), TypeError, "If degrees is a sequence, the length must be 2."),
    (
        lambda: vision.RandomAffine(1, (2, 0)),
        ValueError,
        "Input translate at 0 is not within the required interval of [-1.0, 1.0].",
    ),
    (lambda: vision.RandomAffine(1, shear=-1), ValueError, "Input shear must be greater than 0."),
    (
        lambda: vision.RandomAffine(1, scale=(2, 1)),
        ValueError,
        "Input scale[1] must be equal to or greater than scale[0].",
    ),
    (
        lambda: vision.Affine("x", (0, 0), 1, 0),
        TypeError,
        "Argument degrees with value x is not of type [<class 'int'>, <class 'float'>], but got <class 'str'>.",
    ),
    (
        lambda: vision.Affine(True, (0, 0), 1, 0),
        TypeError,
        "Argument degrees with value True is not of type (<class 'int'>, <class 'float'>), but got <class 'bool'>.",
    ),
    (lambda: vision.NormalizePad([1], [1], 3), TypeError, "dtype should be string."),
    (lambda: vision.RandomColor([0.1]), ValueError, "degrees must be a sequence with length 2."),
    (
        lambda: vision.RandomColorAdjust(hue=(-1, 0)),
        ValueError,
        "Input is not within the required interval of [-0.5, 0.5].",
    ),
    (
        lambda: vision.RandomErasing(value="x"),
        ValueError,
        "The value for erasing should be either a single value, or a string 'random', or a sequence of 3 elements for RGB "
        "respectively.",
    ),
    (lambda: vision.PadToSize((1, 2, 3)), ValueError, "The size must be a sequence of length 2."),
    (lambda: vision.Perspective([[0, 0]], [[0, 0]]), TypeError, "start_points should be a list or tuple of length 4."),
    (lambda: vision.GaussianBlur((3, 4)), ValueError, "Input kernel_size[1] is not an odd value."),
    (lambda: vision.UniformAugment([], 1), ValueError, "num_ops is greater than transforms list size."),
    (lambda: vision.CutOut(0), ValueError, "Input is not within the required interval of [1, 16777216]."),
    (lambda: transforms.OneHot(0), ValueError, "Input must be greater than 0."),
    (lambda: transforms.PadEnd(["a"]), TypeError, "a value in the list is not an integer."),
    (lambda: text.WhitespaceTokenizer(1), TypeError, "Wrong input type for with_offsets, should be boolean."),
    (lambda: text.RegexTokenizer(None), ValueError, "delim_pattern is not provided."),
    (lambda: text.Ngram([]), ValueError, "n needs to be a non-empty list of positive integers."),
    (lambda: text.Vocab.from_list(["a", "a"]), ValueError, "word_list contains duplicate word: a."),
    (
        lambda: text.Vocab.from_list(["a"], ["a"]),
        ValueError,
        "special_tokens and word_list contain duplicate word :{'a'}.",
    ),
    (
        lambda: text.Vocab.from_dataset(ROWS, freq_range=(3, 1)),
        ValueError,
        "frequency range [a,b] should be 0 <= a <= b (a,b are inclusive).",
    ),
    (lambda: audio.LFilter([1], [1, 2]), ValueError, "The size of a_coeffs should be the same as that of b_coeffs."),
    (
        lambda: config.set_seed(-1),
        ValueError,
        "seed given is not within the required range [0, UINT32_MAX(4294967295)].",
    ),
    (lambda: config.set_prefetch_size("a"), TypeError, "size isn't of type int."),
    (lambda: config.set_debug_mode(1), TypeError, "debug_mode_flag isn't of type boolean."),
    (lambda: config.set_enable_watchdog(1), TypeError, "enable must be a boolean dtype."),
    (lambda: ds.Schema().add_column("a", "float8"), TypeError, "Unknown column type."),
    (lambda: ds.PKSampler("a"), TypeError, "num_val must be integer but was: a."),
    (
        lambda: ds.NumpySlicesDataset([1], ["a", "b"]),
        ValueError,
        "Num of input column names is 2, but required is 1 as data is list.",
    ),
    (
        lambda: ds.GeneratorDataset(3, ["a"]),
        TypeError,
        "Input `source` function of GeneratorDataset should be callable, iterable or random accessible, commonly it should "
        "implement one of the method like yield, __getitem__ or __next__(__iter__).",
    ),
    (lambda: ROWS.batch("a"), TypeError, "batch_size should either be an int or a callable."),
    (lambda: ROWS.batch(lambda: 1), ValueError, "callable batch_size should take one parameter (BatchInfo)."),
    (
        lambda: ROWS.padded_batch(2, pad_info={"x": ([1],)}),
        ValueError,
        "value of pad_info should be a tuple of size 2.",
    ),
    (
        lambda: ROWS.bucket_batch_by_length(["x"], [2, 1], [1, 1, 1]),
        ValueError,
        "bucket_boundaries should be strictly increasing.",
    ),
    (lambda: ROWS.repeat(0), ValueError, "count should be either -1 or positive integer, range[1, INT32_MAX]."),
    (
        lambda: ROWS.rename(["x"], ["y", "z"]),
        ValueError,
        "Number of column in input_columns and output_columns is not equal.",
    ),
    (lambda: ROWS.project(["x", "x"]), ValueError, "Every column name should not be same with others in column_names."),
    (lambda: ROWS.split([0.5, 0.2]), ValueError, "sizes is a list of float, but the percentages do not sum up to 1."),
    (lambda: ROWS.sync_update("a"), RuntimeError, "Condition name not found."),
    (lambda: ROWS.filter(3), TypeError, "Predicate should be a Python function or a callable Python object."),
]


@pytest.mark.parametrize(("call", "error", "words"), EXACT)
def test_errors_of_arguments_are_exactly_mindspore_s(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == words
    assert caught.value.__notes__[0].startswith("For '")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ROWS.map(len, ["q"]), "Invalid parameter, input column name: q doesn't exist in the dataset columns."),
        (lambda: ROWS.rename("q", "w"), "Invalid column, column to be renamed does not exist."),
        (
            lambda: ROWS.batch(2, per_batch_map=lambda x, info: (x, x)),
            "the number of columns returned in 'per_batch_map' function should be 1 , but got: 2",
        ),
        (
            lambda: ROWS.padded_batch(2, pad_info={"x": ([2, 2], 0)}),
            "rank of pad_shape must be equal to rank of specified column. pad_shapes rank:2, column rank: 1",
        ),
        (
            lambda: ds.NumpySlicesDataset([1], sampler=ds.WeightedRandomSampler([0.0])),
            "elements of weights vector must not be all zero",
        ),
    ],
)
def test_faults_of_pipelines_hold_mindspore_s_words(build, words):
    with pytest.raises(RuntimeError) as caught:
        next(build().create_dict_iterator(output_numpy=True))
    assert words in str(caught.value)


def test_an_error_of_the_user_s_function_shows_its_calls():
    with pytest.raises(RuntimeError, match=r"(?s)Python Call Stack:.*line \d+, in failing.*KeyError: 'no such thing'"):
        through(failing, [1])()


@pytest.mark.parametrize(("call", "error", "words"), WORDS)
def test_errors_hold_mindspore_s_words(call, error, words):
    with pytest.raises(error) as caught:
        call()
    notes = getattr(caught.value, "__notes__", [])
    # The words alone may be MindSpore's; then a note says whose argument it was.
    assert words in str(caught.value) and any(text.startswith("For '") for text in (str(caught.value), *notes))


def test_a_row_of_a_file_names_the_file(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    data = ds.TextFileDataset(str(tmp_path / "a.txt")).map(failing, ["text"])
    with pytest.raises(
        RuntimeError, match=r"map operation: \[PyFunc\] failed\. The corresponding data file is: .*a\.txt"
    ):
        next(data.create_dict_iterator(output_numpy=True))


def test_a_dict_that_per_batch_map_returns_is_the_batch():
    data = ds.NumpySlicesDataset(([1, 2], [3, 4]), ["x", "y"], shuffle=False).batch(
        2, per_batch_map=lambda x, y, info: ({"sum": sum(x)}, {"sum": sum(y)})
    )
    (row,) = data.create_dict_iterator(output_numpy=True, num_epochs=1)
    assert (int(row["x"]["sum"]), int(row["y"]["sum"])) == (3, 7)


@pytest.mark.parametrize(
    ("columns", "schema", "words"),
    [
        (["none"], None, "Invalid columns_list, tfrecord file failed to find column name: none"),
        (
            None,
            ("none", "int64", [1]),
            "Feature name: none is required in schema but could not be found in tfrecord file.",
        ),
        (
            None,
            ("label", "int64", [7]),
            "Column shape of label defined in schema does not match the shape actually load",
        ),
        (None, ("label", "string", None), "for feature name: label does not match the predefined type in schema"),
        (None, ("names", "int64", None), "for feature name: names does not match the predefined type in schema"),
        (None, ("names", "int8", None), "for feature name: names does not match the predefined type in schema"),
    ],
)
def test_records_are_compared_with_what_is_requested(tmp_path, columns, schema, words):
    source_files.tfrecord(tmp_path)
    schema_object = None
    if schema is not None:
        schema_object = ds.Schema()
        schema_object.add_column(*schema)
    data = ds.TFRecordDataset(str(tmp_path / "a.tfrecord"), schema_object, columns)
    with pytest.raises(RuntimeError, match=words):
        next(data.create_dict_iterator(output_numpy=True))


@pytest.mark.parametrize(
    ("feature", "use"),
    [
        ("Dataset AutoTune", lambda: config.set_enable_autotune(True)),
        ("Dataset Offload", lambda: ROWS.map(len, offload=True)),
        ("Dataset sync wait", lambda: ROWS.sync_wait("a")),
        ("Dataset sync update", lambda: ROWS.sync_update("a")),
    ],
)
def test_what_a_process_of_its_own_cannot_do_is_refused(monkeypatch, feature, use):
    monkeypatch.setenv("MS_INDEPENDENT_DATASET", "True")
    with pytest.raises(RuntimeError, match=f"{feature} is not supported in Dataset Independent mode."):
        use()


def test_offload_warns():
    with pytest.warns(UserWarning, match="'offload' has no effect"):
        data = ROWS.map(lambda x: x + 1, ["x"], offload=True)
    assert [row["x"].tolist() for row in data.create_dict_iterator(output_numpy=True)] in ([[2], [3]], [[3], [2]])
