"""What every package stands on and what knows no tensor: errors, JSON documents, files that are written whole, units, tables."""
