"""Where rows come from: the user's memory, text files, and data sets in their published formats.

A data set is one row of a table, in its class statement: arguments and columns; `_read` reads its files.
`format` builds the constructors and has the bases of data sets, and the arguments that formats share. `reading` holds what a
table has, finds and reads files from end to end and names the position of an error; `tfrecord` is a file format. The other
modules hold the data sets by subject.
"""
