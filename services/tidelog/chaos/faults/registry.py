"""Faults by name, and the parameters of each: what a scenario file and a command line may ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from tidelog.chaos.faults import disks, links, processes
from tidelog.chaos.faults.base import Fault
from tidelog.names import suggestion

FAULTS: Final[Mapping[str, type[Fault]]] = {
    fault.name: fault
    for fault in (
        *(processes.Kill, processes.Stop, processes.PauseProcess, processes.Bounce, processes.Restart),
        *(processes.RollingRestart, processes.LoseQuorum),
        *(links.Isolate, links.PacketLoss, links.Reset, links.SlowLink),
        *(disks.Wipe, disks.TornTail, disks.BitFlip, disks.FullDisk),
    )
}

SIMULATOR_ONLY: Final[Mapping[str, str]] = {
    "power-loss": "what a killed process has written stays in the kernel's memory, so nothing is lost with it (reliability D3)",
    "clock": "all processes share the machine's clock",
}
"""Faults of the matrix that no process can be shown, and why."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    written: str
    """Its default, as a scenario would give it."""
    parse: Callable[[str], object]
    """ValueError says what is wrong with the text."""
    about: str


def fault_named(name: str) -> type[Fault]:
    """ValueError says why there is none, and which name is near."""
    found = FAULTS.get(name)
    if found is not None:
        return found
    if why := SIMULATOR_ONLY.get(name):
        raise ValueError(f"fault {name!r} is played by the simulator only: {why}")
    raise ValueError(f"no fault {name!r}{suggestion(name, FAULTS)}")


def last_step(name: str) -> str:
    """The step of a history after which nothing of the fault is left."""
    fault = FAULTS.get(name)
    return "effect" if fault is not None and fault.passes else "healed"


def parameters_of(fault: type[Fault]) -> dict[str, Parameter]:
    found = fields(fault)  # type: ignore[arg-type]
    return {f.name: Parameter(f.name, **f.metadata) for f in found}


def make(fault: type[Fault], texts: Mapping[str, str]) -> Fault:
    """With its parameters as a scenario gives them. ValueError names the one that is unknown or wrong."""
    known = parameters_of(fault)
    for name in texts:
        if name not in known:
            raise ValueError(f"fault {fault.name!r} has no parameter {name!r}{suggestion(name, known)}")
    values = {}
    for name, text in texts.items():
        try:
            values[name] = known[name].parse(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return fault(**values)
