"""scripts/uv_settings.py: uv gets what pip is set to, and no password shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import ROOT, load_script

settings = load_script("uv_settings")


def of(listing: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    return settings.variables(settings.pip_options(listing), environ or {})


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("global.index-url='https://a/simple'", {"UV_DEFAULT_INDEX": "https://a/simple"}),
        (
            "global.extra-index-url='\\nhttps://a\\nhttps://u:p@b  https://c'",
            {"UV_INDEX": "https://a https://u:p@b https://c"},
        ),
        ("global.find-links='https://a/x file:///b'", {"UV_FIND_LINKS": "https://a/x,file:///b"}),
        ("global.trusted-host='a b:8080'", {"UV_INSECURE_HOST": "a b:8080"}),
        ("global.cert='/a.pem'", {"SSL_CERT_FILE": "/a.pem"}),
        ("global.client-cert='/a.pem'", {"SSL_CLIENT_CERT": "/a.pem"}),
        ("global.proxy='http://u:p@a:3128'", dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://u:p@a:3128")),
        ("global.timeout='60'", {"UV_HTTP_TIMEOUT": "60"}),
        (":env:.default-timeout='180'", {"UV_HTTP_TIMEOUT": "180"}),
        ("global.break-system-packages='true'\ndownload.index-url='https://a'\nFor variant 'user', will try x", {}),
        ("", {}),
    ],
)
def test_each_setting_of_pip_has_its_variable(listing: str, expected: dict[str, str]) -> None:
    assert of(listing) == expected


def test_environment_is_before_install_and_that_before_global() -> None:
    both = "install.index-url='https://install'\nglobal.index-url='https://global'"
    assert of(both) == {"UV_DEFAULT_INDEX": "https://install"}
    assert of(f":env:.index-url='https://env'\n{both}") == {"UV_DEFAULT_INDEX": "https://env"}
    assert of(f":env:.index-url=''\n{both}") == {"UV_DEFAULT_INDEX": "https://install"}  # as pip has it


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_variables_that_uv_has_already_win(name: str) -> None:
    listing = "global.index-url='https://pip'\nglobal.trusted-host='a'"
    assert of(listing, {name: "https://uv"}) == {"UV_INSECURE_HOST": "a"}


def test_certificates_of_pip_win_over_those_of_the_machine() -> None:
    machine = {"SSL_CERT_FILE": "/machine", "REQUESTS_CA_BUNDLE": "/requests"}
    assert of("global.cert='/pip'", machine) == {"SSL_CERT_FILE": "/pip"}
    assert of("", machine) == {"SSL_CERT_FILE": "/machine"}
    assert of("", {"CURL_CA_BUNDLE": "/curl"}) == {"SSL_CERT_FILE": "/curl"}


def test_a_folder_of_links_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    assert of(f"global.find-links='{tmp_path}/none {tmp_path}'") == {"UV_FIND_LINKS": str(tmp_path)}
    assert of(f"global.find-links='{tmp_path}/none'") == {}


def run(tmp_path: Path, config: str, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The script with a configuration of pip that has nothing of this machine's."""
    (tmp_path / "pip.conf").write_text(config)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    environment = {**kept, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), **environ}
    script = [sys.executable, str(ROOT / "scripts" / "uv_settings.py"), *command]
    return subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)


def test_the_command_gets_them_and_nothing_is_printed(tmp_path: Path) -> None:
    config = "[global]\nindex-url = https://user:secret@index/simple\nquiet = 1\n[install]\nno-index = yes\n"
    show = 'echo "$UV_DEFAULT_INDEX $*" >"$0"'
    done = run(tmp_path, config, "sh", "-c", show, f"{tmp_path}/seen", PIP_TRUSTED_HOST="a")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "seen").read_text() == "https://user:secret@index/simple --no-index\n"


def test_a_configuration_that_pip_cannot_read_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "[global\n", "true")
    assert done.returncode != 0 and "pip.conf" in done.stderr
