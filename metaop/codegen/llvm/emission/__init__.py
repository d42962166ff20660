"""Emission: loop nests are printed as LLVM IR."""
