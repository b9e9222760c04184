"""What processes say to each other, and its byte form."""
