"""What a pipeline is: immutable nodes, from sources to the operation applied last."""
