"""Sockets: peers, streams and their security."""
