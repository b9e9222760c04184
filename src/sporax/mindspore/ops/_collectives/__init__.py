"""Communication operators: collectives, messages between two ranks, pending requests."""

from sporax.mindspore.ops._collectives import messages, primitives
