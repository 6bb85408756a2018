"""`python -m updraft.simulate`: policies side by side, as in docs/policies.md."""

import sys

from updraft.simulate.compare import compare, table

sys.stdout.write(table(list(compare())))
