"""The simulator with a mutant in it: `TIDELOG_MUTANT=TABLE:NAME python -m mutants.simulate --seeds 10`."""

import sys

from mutants.patching import plant_from_environment
from tidelog.testing import sim

if __name__ == "__main__":
    plant_from_environment()
    sys.exit(sim.main())
