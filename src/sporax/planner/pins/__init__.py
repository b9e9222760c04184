"""What users fixed of a plan: strategies, layouts and constraints of operators, as placements."""
