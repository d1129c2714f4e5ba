"""rose-nano: its corpus, training, export and evaluation."""
