"""Mistakes planted in the real code, each of which a test must notice: `make mutants`.

A mutant is a function that replaces functions, methods or constants of the imported code, and so it outlives a rewrite of the
lines around its mistake. Most of them wrap the original: they call it with other arguments, while its object has other fields
(`Code.during`), or make something else of its result (`around`). A mutant whose target is gone is stale, which stops it: it
must be written anew, not skipped.

What must fail is either the simulator (`BySimulator`: seeds from 0 upwards until one fails; the seed that did is kept in
found_seeds.json) or a test, by its pytest id (`ByTest`). Only the process that judges has the mutant in it: pytest plants it
before it collects anything (`plugin.py`), the simulator before its first seed (`simulate.py`). Processes that a test starts
run the code as it is, so no test that judges may leave the work to one.

`simulator.py` has the mutants of the fault model, `groups.py` those of coordinators and consumers, `rules.py` those of the
known holes, `edges.py` and `edge_*.py` those at the edges of the system, `checker.py` those of the checker
of chaos. To add a table, write a module with a `Table` named MUTANTS and name it in `__main__.TABLES`.
"""
