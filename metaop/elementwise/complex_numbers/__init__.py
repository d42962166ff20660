"""The scalar functions of complex numbers, written with those of their parts."""
