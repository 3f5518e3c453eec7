"""The reason in one line out of what Spark says when a query fails: JVM traces around Python traces around the cause. Pure."""

import re
from typing import Final

_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit)): ?(.*)$")
_PYTHON_CLASS: Final = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z]\w*: ")
_FRAME: Final = re.compile(r"^\s+(?:at |File \"|\.\.\. \d+ more)|^Traceback \(most recent call last\):|^\s*~*\^+~*\s*$")
_HEAD: Final = re.compile(r"^(\[[A-Z][A-Z0-9_.]*\]|Query \[id = [^]]*\] terminated with exception:) ?")
_JVM_ERROR: Final = re.compile(r"^(?:Caused by: |: )?(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error)): ?(.*)$")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+;?")
_TAIL: Final = re.compile(r"\s*(;|== .*|JVM stacktrace:.*|Driver stacktrace:.*)$")
_UNTELLING: Final = (
    "PythonException",
    "SparkException",
    "StreamingQueryException",
    "Py4JJavaError",
    "PySparkRuntimeError",
)
LENGTH_MAX: Final = 600


def cause_of(text: str) -> str:
    """Of the whole text of an error: the last line of the innermost Python trace, else the innermost JVM cause, else
    the first line."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    told = _python(lines) or _jvm(lines) or (lines[0] if lines else "Spark failed and did not say why")
    return _clean(told)


def _python(lines: list[str]) -> str | None:
    """The error after the last trace that began: chained traces end with what was raised to the outside."""
    inside, found = False, None
    for line in lines:
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and (error := _PYTHON_ERROR.match(line)) is not None:
            inside = False
            if error[1] not in _UNTELLING or found is None:
                found = error[2] or error[1]
        elif inside and not line[0].isspace() and not _FRAME.match(line) and not line.startswith("During handling"):
            inside, found = False, _PYTHON_CLASS.sub("", line)  # of a class whose name does not end in Error
    return found


def _jvm(lines: list[str]) -> str | None:
    causes = [found for line in lines if (found := _JVM_ERROR.match(line)) is not None]
    telling = [found for found in causes if found[1] not in _UNTELLING and found[2]]
    return telling[-1][2] if telling else causes[-1][2] if causes else None


def _clean(text: str) -> str:
    text = _STATE.sub("", text).strip()
    for outer in (_HEAD, _TAIL):
        while (shorter := outer.sub("", text)) != text:
            text = shorter
    return text if len(text) <= LENGTH_MAX else f"{text[:LENGTH_MAX]}..."
