"""The files of the page name no other host, and a saved page holds everything, whatever is in its texts."""

import base64
import hashlib
import json
import re

from tidelog.page import files


def test_the_policy_allows_the_import_map_and_nothing_inline() -> None:
    page, policy = files.served()
    (imports,) = re.findall(r'<script type="importmap">(.*?)</script>', page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}'" in policy and "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"\son\w+=|\sstyle=|<style", page)


def test_every_module_that_is_imported_is_there() -> None:
    page, _ = files.served()
    known = set(files.names())
    assert set(re.findall(r'"\./static/([\w.-]+)"', page)) <= known
    for name in known:
        wanted = re.findall(r'from "([^"]+)"|^import "([^"]+)"', files.read(name), re.MULTILINE)
        for module in {one or other for one, other in wanted}:
            assert module == "lit-html" or module.removeprefix("tidelog/") in known, f"{name} imports {module}"


def test_no_file_names_an_address_elsewhere() -> None:
    for name in ("index.html", *files.names()):
        found = set(re.findall(r"https?://[^\s\"'`)]+", files.read(name)))
        assert found <= {"http://www.w3.org/2000/svg"}, name


def test_a_saved_page_is_one_file_in_which_texts_are_texts() -> None:
    nasty = "</script><script>alert(1)</script><!--"
    page = files.saved([{"v": 1, "events": [{"text": nasty}]}])
    assert nasty not in page and "./static/" not in page and '<link rel="stylesheet"' not in page
    (kept,) = re.findall(r'<script type="application/json" id="saved">(.*?)</script>', page, re.DOTALL)
    assert json.loads(kept) == [{"v": 1, "events": [{"text": nasty}]}]
    (imports,) = re.findall(r'<script type="importmap">(.*?)</script>', page, re.DOTALL)
    for name, url in json.loads(imports)["imports"].items():
        script = base64.b64decode(url.removeprefix("data:text/javascript;base64,")).decode()
        assert script == files.read(f"{name}.js" if name == "lit-html" else name.removeprefix("tidelog/"))


def test_the_library_is_what_its_page_says() -> None:
    told = files.read("README.md")
    assert hashlib.sha256(files.read("lit-html.js").encode()).hexdigest() in told and "BSD-3-Clause" in told
    assert "BSD" in files.read("lit-html.LICENSE") or "Redistribution" in files.read("lit-html.LICENSE")


def test_our_own_code_is_small() -> None:
    ours = [name for name in ("index.html", *files.names()) if name != "lit-html.js"]
    assert sum(files.read(name).count("\n") for name in ours) < 2_000
