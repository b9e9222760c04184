"""Where variables are between steps: host memory, files, blocks, stacks."""
