"""Products, norms, decompositions and solutions of matrices."""
