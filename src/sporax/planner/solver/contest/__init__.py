"""What only the IOPDDL contest needs: its file format and ``sporax solve``.

`reader` reads and checks files, `solve_command` is the command. Nothing that makes a plan needs this package; the solver's face
offers `read_graph` to people.

Methods of the solver, and who needs them:

* plans: `graph` (all), and in `methods` `trws`, `bucket_elimination`, `coordinate_descent`, `neighborhood` (`quick_choice`);
  `lagrangian`, `label_elimination`, `label_rounds` (dynamic programming under a limit); `integer_program`, `exact` (`ilp`).
* plans in rare cases, the contest nearly always: `portfolio.team`, `worker`, `roles` and `methods.large_neighborhood_search`,
  which take over where a reduced graph has too many entries for one integer program, or its time is not enough.
"""
