"""What an MSJob is: its specification, schema, status and submission."""
