"""Meshes and shardings, a plan as a program of devices, and measured rates."""
