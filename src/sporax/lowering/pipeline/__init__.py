"""From the graph of a whole step to the programs of pipeline stages."""
