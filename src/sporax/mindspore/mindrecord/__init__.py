"""MindRecord files, MindSpore's own format of data: written, read and paged through (`mindspore.mindrecord`).

`dataset.MindDataset` makes a pipeline of them. A file and its index:

===================  ====================================================================================================
``NAME``             a header (a JSON text in the first 16 MiB: schema, index fields, pages, names of all shards), then
                     pages of equal size. Rows lie in two kinds of pages: numbers and strings in one, bytes and arrays
                     in the other
``NAME.db``          an SQLite table with one line per row: where its two parts lie, and the values of its index fields
===================  ====================================================================================================

`_schema` and `_shard` are the format, `_write` and `_pages` the public classes over it. Not offered: encryption (`set_enc_key`
and its relatives refuse) and the converters from other formats (write a loop with `FileWriter`).
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _schema: MindRecordException MRMGetMetaError
        MRMAddIndexError MRMAddSchemaError MRMDefineCategoryError MRMDefineIndexError
        MRMInvalidSchemaError MRMOpenError MRMUnsupportedSchemaError MRMValidateDataError ParamTypeError ParamValueError
        set_dec_mode set_enc_key set_enc_mode
    _pages: MindPage FileReader
    _write: FileWriter
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
