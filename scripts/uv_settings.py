#!/usr/bin/env python3
"""uv with the settings of pip, which it does not read: `uv_settings.py uv pip install ...` runs that with them.

Settings go into the environment of uv, since they may hold passwords: no file and no command line gets them. A UV_* variable that
is set already wins. Runs with the standard library alone, and asks the pip of the interpreter that it runs in.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SECTIONS: Final = ("global", "install", ":env:")
"""Sections of pip's configuration that count for `pip install`; a later one wins."""
FORMER_NAMES: Final[Mapping[str, str]] = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
"""The variable that uv also takes, and that must not be overruled by the one set here."""
TRUE: Final = frozenset({"y", "yes", "t", "true", "on", "1"})


def pip_options(listing: str) -> dict[str, str]:
    """Options by name out of what `pip config list` prints. An empty one counts as not set, as for pip."""
    sections: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in sections and (text := str(ast.literal_eval(value))):
            sections[section][name] = text
    return {name: text for section in SECTIONS for name, text in sections[section].items()}


def no_index(options: Mapping[str, str]) -> bool:
    return options.get("no-index", "").lower() in TRUE


def variables(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of uv that say what `options` say to pip, without those that `environ` has for uv."""
    # requests, inside pip, takes these where pip has no certificates of its own.
    certificates = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE", "")
    proxy = options.get("proxy", "")
    wanted = {
        "UV_DEFAULT_INDEX": options.get("index-url", ""),
        "UV_INDEX": " ".join(options.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(filter(_can_be_searched, options.get("find-links", "").split())),
        "UV_INSECURE_HOST": " ".join(options.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": options.get("timeout", options.get("default-timeout", "")),
        "SSL_CERT_FILE": os.path.expanduser(options.get("cert", "")) or environ.get("SSL_CERT_FILE", certificates),
        "SSL_CLIENT_CERT": os.path.expanduser(options.get("client-cert", "")),
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
    }
    return {
        name: value
        for name, value in wanted.items()
        if value and not (name.startswith("UV_") and (name in environ or FORMER_NAMES.get(name, name) in environ))
    }


def _can_be_searched(place: str) -> bool:
    """False for a folder that is not there: pip passes over it, and uv fails."""
    return "://" in place or Path(place).is_dir()


def main(command: list[str]) -> None:
    # Verbose, since a setting can make pip too quiet to list any; the additional lines have no section.
    pip = [sys.executable, "-m", "pip", "-vv", "config", "list"]
    options = pip_options(subprocess.run(pip, check=True, stdout=subprocess.PIPE, text=True).stdout)
    os.environ.update(variables(options, os.environ))
    flags = ["--no-index"] if no_index(options) else []  # has no variable
    os.execvp(command[0], [*command, *flags])


if __name__ == "__main__":
    main(sys.argv[1:])
