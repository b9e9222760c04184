"""Where rows come from: the user's memory, text files, and data sets in their published formats.

`folder` and `text` are the moulds; `columns` says how a table keeps its columns, `reading` how files are read and what is
said of broken ones; `idx`, `tfrecord` and `schema` are file formats. The other modules hold the data sets.
"""
