"""What a report says, as values: names, groups, summaries, explanations, differences."""
