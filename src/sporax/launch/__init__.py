"""The command line and the launcher: how a script becomes one or many running ranks.

Imports nothing of `sporax.mindspore`, nor JAX: the process that starts and watches ranks stays light, and
environment variables that JAX reads once can still be set.
"""
