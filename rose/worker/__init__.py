"""Workers: one rank each, from a scheduled step to its tokens."""
