"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.mindrecord._errors import MRMAddIndexError as MRMAddIndexError
from sporax.mindspore.mindrecord._errors import MRMAddSchemaError as MRMAddSchemaError
from sporax.mindspore.mindrecord._errors import MRMDefineCategoryError as MRMDefineCategoryError
from sporax.mindspore.mindrecord._errors import MRMDefineIndexError as MRMDefineIndexError
from sporax.mindspore.mindrecord._errors import MRMInvalidSchemaError as MRMInvalidSchemaError
from sporax.mindspore.mindrecord._errors import MRMOpenError as MRMOpenError
from sporax.mindspore.mindrecord._errors import MRMUnsupportedSchemaError as MRMUnsupportedSchemaError
from sporax.mindspore.mindrecord._errors import MRMValidateDataError as MRMValidateDataError
from sporax.mindspore.mindrecord._errors import MindRecordException as MindRecordException
from sporax.mindspore.mindrecord._errors import ParamTypeError as ParamTypeError
from sporax.mindspore.mindrecord._errors import ParamValueError as ParamValueError
from sporax.mindspore.mindrecord._errors import set_dec_mode as set_dec_mode
from sporax.mindspore.mindrecord._errors import set_enc_key as set_enc_key
from sporax.mindspore.mindrecord._errors import set_enc_mode as set_enc_mode
from sporax.mindspore.mindrecord._pages import FileReader as FileReader
from sporax.mindspore.mindrecord._pages import MindPage as MindPage
from sporax.mindspore.mindrecord._write import FileWriter as FileWriter


