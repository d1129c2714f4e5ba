"""The program of a further front-end process; `rose.server.siblings` starts it."""

import sys

from rose.server.serve import serve_as_sibling
from rose.server.siblings import Job, read_word

STDIN = 0


def main() -> int:
    """Read the job and do it; the exit status."""
    job = read_word(STDIN)
    if not isinstance(job, Job):
        return 1  # whoever started this process is gone
    serve_as_sibling(job, STDIN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
