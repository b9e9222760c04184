"""The commands of `sporax`, one module each."""
