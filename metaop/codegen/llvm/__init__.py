"""The CPU backend: LLVM IR text, compiled through llvmlite and run on an own thread pool."""
