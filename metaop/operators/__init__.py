"""Named compositions: every high-level operator as a function from nodes to nodes."""
