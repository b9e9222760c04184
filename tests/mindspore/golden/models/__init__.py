"""Well-known networks in small, each in one file written with MindSpore's names only.

Every file has the same two functions: `net(ms)`, the network made with the framework `ms`, and `batches()`, what it is
trained on. `curve_recipes` says how each is trained.
"""
