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
    """Returns one file that shows these messages without a server and without a network."""
    scripts = [name for name in names() if name.endswith(".js")]
    imports = {(_LIBRARY if name == f"{_LIBRARY}.js" else f"tidelog/{name}"): _as_url(read(name)) for name in scripts}
    policy = "default-src 'none'; script-src data: 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page = read("index.html")
    for place, text in (
        (_MAP_HERE, f'{head}<script type="importmap">{json.dumps({"imports": imports})}</script>'),
        (_STYLE_HERE, f"<style>{read('page.css')}</style>"),
        (
            _START_HERE,
            f'<script type="application/json" id="saved">{_in_html(messages)}</script>'
            '<script type="module">import "tidelog/main.js"</script>',
        ),
    ):
        page = page.replace(place, text)
    return page


def _as_url(script: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"


def _in_html(messages: Sequence[Mapping[str, Any]]) -> str:
    """No text in it can end the element."""
    return json.dumps(messages, separators=(",", ":")).replace("<", "\\u003c")
