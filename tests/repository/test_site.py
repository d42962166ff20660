"""The site is built without a warning and without network; its links and plots are right."""

from __future__ import annotations

import html.parser
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="pip install 'metaop[docs]'")

ROOT = Path(__file__).parents[2]
# A program that is run first in each process of the build: whoever asks for a host is refused.
OFFLINE = """
import socket

def refuse(*arguments, **names):
    raise OSError("the site is built without network")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
"""


class Page(html.parser.HTMLParser):
    """What a page points at, what it loads, and what can be pointed at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if key in ("id", "name") and value:
                self.names.add(value)
            if key == "href" and tag == "a" and value:
                self.links.add(value)
            if value and ((key == "src") or (key == "href" and tag == "link")):
                self.loaded.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "offline").mkdir()
    (folder / "offline" / "sitecustomize.py").write_text(OFFLINE)
    paths = os.pathsep.join((str(folder / "offline"), str(ROOT)))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    # `-E` and a folder of its own: nothing that an earlier build made is taken.
    command += ["-E", "-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_links_within_the_site_lead_somewhere(site: Path) -> None:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 50
    for path, page in pages.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert link not in page.loaded or parts.scheme == "data", f"{path} loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path} points at {link}"
            if parts.fragment and target in pages and link in page.links:
                assert unquote(parts.fragment) in pages[target].names, f"{path} points at {link}"


@pytest.mark.slow
def test_every_page_is_in_the_contents(site: Path) -> None:
    first = Page(site / "index.html")
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        if name != "index.html":
            assert name in {urlsplit(link).path for link in first.links}, f"{name} is not listed"


def test_pages_that_no_list_names_are_put_under_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    configuration = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    pages = {"index", "sizes", "new", "tutorials/porting", "tutorials/new", "reference/index"}
    app = SimpleNamespace(env=SimpleNamespace(found_docs=pages))
    text = [(ROOT / "docs" / "index.md").read_text()]
    configuration["add_unlisted_pages"](app, "index", text)
    assert text[0].endswith(":caption: More\n\nnew\ntutorials/new\n```\n")


def test_plots_show_the_numbers_of_the_page(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from tools import plots
    finally:
        sys.path.pop(0)
    if request.config.getoption("--update-golden"):
        plots.main()
    for name in plots.PLOTS:
        for theme in plots.THEMES:
            numbers = plots.draw(name, theme)[1]
            assert len(numbers.split()) >= 20
            written = plots.described(plots.ASSETS / f"{name}-{theme}.svg")
            assert written == numbers, "draw them anew with ./test tests/repository --update-golden"
