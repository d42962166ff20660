"""Code generation: loop nests become machine code, one folder for each backend."""
