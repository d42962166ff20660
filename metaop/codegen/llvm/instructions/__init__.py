"""Instructions: values of LLVM IR text, and what computes, converts, loads and stores them."""
