"""Where rows come from: the user's memory, text files, and data sets in their published formats.

A data set is one row of a table, in its class statement: arguments, columns, and the function that reads its files.
`format` builds the constructors and has the bases of data sets, `arguments` what formats share. `columns` holds what a table has,
`reading` finds and reads files from end to end and names the position of an error; `tfrecord` and `schema` are file formats. The
other modules hold the data sets by subject.
"""
