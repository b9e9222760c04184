"""From an operator graph and a plan to the program of one rank."""
