"""Objects: LLVM IR text becomes machine code, here or in worker processes, and is loaded."""
