"""How Sphinx makes the site: `sphinx-build -W docs site`, without network.

The pages are docs/*.md. The reference is written from the docstrings of the public modules
(docs/tools/reference.py); a page that no list of contents names is put under "More".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

from tools import reference  # noqa: E402

import metaop  # noqa: E402

project = "metaop"
author = "the authors of metaop"
version = release = re.sub(r"\+.*", "", metaop.__version__)

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["tools"]
# The prompts and options of commands are not typed by whoever copies them.
copybutton_exclude = ".linenos, .gp, .go"

default_role = "code"
autodoc_member_order = "groupwise"
autodoc_inherit_docstrings = False
autodoc_typehints = "none"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries = False

html_theme = "furo"
html_title = f"metaop {version}"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7cb8ff", "color-brand-content": "#7cb8ff"},
    # No icons and no fonts of other hosts: the site needs nothing but its own files.
    "footer_icons": [],
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def add_unlisted_pages(app: Any, name: str, text: list[str]) -> None:
    """Puts the pages that no list of contents on the first page names under "More"."""
    if name != "index":
        return
    listed = set(re.findall(r"^[\w./-]+$", text[0], re.MULTILINE))
    inner = {page for page in app.env.found_docs if page.startswith(("reference/", "decisions/"))}
    more = sorted(app.env.found_docs - listed - inner - {"index"})
    if more:
        pages = "\n".join(more)
        text[0] += f"\n```{{toctree}}\n:hidden:\n:caption: More\n\n{pages}\n```\n"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    reference.write(DOCS / "reference")
    app.connect("source-read", add_unlisted_pages)
    app.connect("autodoc-process-docstring", reference.as_restructured_text)
