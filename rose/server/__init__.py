"""The front end: an OpenAI-compatible JSON API over an engine process. Runs without torch."""
