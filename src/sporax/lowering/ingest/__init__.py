"""From a jaxpr to an operator graph, and graphs rewritten before they are planned."""
