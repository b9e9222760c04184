"""The ranks of a job: groups, joint arrays, collectives, exchange with parameter servers."""
