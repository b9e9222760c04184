"""Settings of Sphinx for the pages that `tools/make_site.py` has put together (`make site`)."""

from sporax._version import __version__

project = "Sporax"
author = "the authors of Sporax"
project_copyright = "the authors of Sporax, Apache-2.0"
version = release = __version__
html_title = f"Sporax {__version__}"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["files"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False  # pages stand in the site as Markdown, under their own names
highlight_language = "none"  # blocks without a language are shown as they are

myst_heading_anchors = 4  # GitHub's names of headings
myst_enable_extensions = []
suppress_warnings = ["myst.header"]  # entries of the reference begin below the title
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
}
