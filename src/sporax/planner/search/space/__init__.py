"""What a search chooses from: decisions, candidates and their costs, and the way from a choice to a plan."""
