"""The files of the page, as a server sends them and as one file that needs no server."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

_STATIC: Final = files("tidelog.page").joinpath("static")
TYPES: Final = {".js": "text/javascript", ".css": "text/css"}
_LIBRARY: Final = "lit-html"
_MAP_HERE: Final = "<!--importmap-->"
_STYLE_HERE: Final = '<link rel="stylesheet" href="./static/page.css">'
_INCOMPLETE: Final = "A part of this file is missing, so there is nothing to see: save the page again."
_START_HERE: Final = '<script type="module" src="./static/main.js"></script>'


def names() -> list[str]:
    """Returns the names of all files that a page may ask for."""
    return sorted(each.name for each in _STATIC.iterdir() if each.name.endswith(tuple(TYPES)))


def read(name: str) -> str:
    return _STATIC.joinpath(name).read_text(encoding="utf-8")


def served() -> tuple[str, str]:
    """Returns the page with relative addresses, and the Content-Security-Policy that it is served with."""
    imports = json.dumps({"imports": {"tidelog/": "./static/", _LIBRARY: f"./static/{_LIBRARY}.js"}})
    digest = base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return read("index.html").replace(_MAP_HERE, f'<script type="importmap">{imports}</script>'), policy


def saved(messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns one file that shows these messages without a server and without a network.

    Its script comes last, and takes away a line that stays if a part of the file is missing.
    """
    scripts = [name for name in names() if name.endswith(".js")]
    imports = {(_LIBRARY if name == f"{_LIBRARY}.js" else f"tidelog/{name}"): _as_url(read(name)) for name in scripts}
    policy = "default-src 'none'; script-src data: 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    page = read("index.html")
    for place, text in (
        (_MAP_HERE, f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        (_STYLE_HERE, ""),
        (_START_HERE, ""),
        ("<body>", f'<body><p id="incomplete">{_INCOMPLETE}</p><style>{read("page.css")}</style>'),
        (
            "</body>",
            f'<script type="application/json" id="saved">{_in_html(messages)}</script>'
            f'<script type="importmap">{json.dumps({"imports": imports})}</script>'
            '<script type="module">import "tidelog/main.js"</script></body>',
        ),
    ):
        page = page.replace(place, text)
    return page


def _as_url(script: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"


def _in_html(messages: Sequence[Mapping[str, Any]]) -> str:
    """No text in it can end the element."""
    return json.dumps(messages, separators=(",", ":")).replace("<", "\\u003c")
