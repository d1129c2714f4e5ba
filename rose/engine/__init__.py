"""The engine: scheduling on one side, an executor of steps on the other."""
