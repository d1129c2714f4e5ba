"""A load generator for servers that speak OpenAI's API; it runs without torch.

`plan` says what is asked, `arrivals` when, `client` asks it. `share` is one process's part of a
load, `processes` spreads it over several, `run` makes results of it, `stats` and `table` show them.
"""
