"""Where rows come from: the user's memory, text files, and data sets in their published formats.

A data set is one row of a table, the `Format` in its class statement: arguments, columns, and the function that reads its files.
`format` builds the constructors, `arguments` has the arguments that formats share, and `text_files` is the base of data sets in
text files. `columns` keeps what a table holds, `reading` reads whole files and names the place of an error; `idx`, `tfrecord`
and `schema` are file formats. The other modules hold the data sets by subject.
"""
