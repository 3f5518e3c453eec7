"""Mistakes planted in the real code, each of which a test must notice: `make mutants` (reliability 10).

A `Mutant` is a name, one or more patches and what must fail under them. A `Patch` is a file below services/tidelog, a text that
occurs in it exactly once, and what stands there instead. `patched_tree` makes a source tree with the patches (everything
else is a link to the real one); whatever runs with that folder first in PYTHONPATH, child processes too, runs the mutant.
When the old text is not there any more the patch is stale and everything stops: it must be written anew, not skipped.

What must fail is either the simulator (`BySimulator`: seeds from 0 upwards until one fails; the seed that did is kept in
found_seeds.json) or a test, by its pytest id (`ByTest`). `simulator.py` has the mutants of the fault model,
`groups.py` those of coordinators and consumers,
`holes.py` those of the known holes. To add a table, write a module with a tuple MUTANTS and name it in `__main__.TABLES`.
"""
