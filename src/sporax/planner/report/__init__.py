"""What people see of a plan: summaries, explanations, differences, HTML reports, progress of a search."""
