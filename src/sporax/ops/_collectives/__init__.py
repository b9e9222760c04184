"""Communication operators: collectives, messages between two ranks, pending requests."""

from sporax.ops._collectives import messages, primitives
