"""Slots: tables, updates, the write-ahead log and its files."""
