"""How an operator is made: kernel, primitive class, Tensor method, argument checks, promotion, marks."""
