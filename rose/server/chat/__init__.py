"""Chat formats: conversations to token ids, and a model's tokens back to typed messages."""
