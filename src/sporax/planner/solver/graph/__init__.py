"""The cost graph and what makes it smaller without losing its optimum."""
