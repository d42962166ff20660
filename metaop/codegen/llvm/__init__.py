"""The CPU backend: LLVM IR text, compiled through llvmlite and run on a thread pool of its own."""
