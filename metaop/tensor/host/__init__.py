"""What is computed by the host, and arrays and capsules of other libraries."""
