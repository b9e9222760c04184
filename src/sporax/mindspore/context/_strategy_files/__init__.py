"""MindSpore's strategy files and layout tuples: read before a step is planned, written when it is.

    names       operators by place and by weight, and their strategies by these names
    documents   one operator's strategy as JSON
    protobuf    MindSpore's message
    layouts     where a planned step keeps its Parameters, as MindSpore's tuples
    files       which files the settings name; what gives a session strategies and notes planned steps

They are next to the settings, which name the files: Cells and checkpoints above read the same layouts.
"""
