"""Where rows come from: the user's memory, text files, and data sets in their published formats.

A data set is one row of a table, the `Format` in its class statement: arguments, columns, and the function that reads its files.
`format` builds the constructors, `specified` has the bases of data sets, and `arguments` what formats share. `columns` and
`text_files` hold what a table has, `reading` finds and reads whole files and names the position of an error; `idx`, `tfrecord`
and `schema` are file formats. The other modules hold the data sets by subject.
"""
