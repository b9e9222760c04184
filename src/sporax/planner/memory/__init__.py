"""Peak memory of a plan: live ranges, buffer assignment, recomputation; `xla_cpu` models what a compiler fuses."""
