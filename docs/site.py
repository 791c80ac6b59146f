"""What mkdocs needs to make a site of documents that are written to be read in the source tree.

The pages of the project's root are pages of the site, README its first. Links lead from page to page; to anything else
of the tree (source, examples) there is no page, and the words stay without a link.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files

ROOT_PAGES = {
    "README.md": "index.md",
    **{n: n for n in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")},
}
CODE_OR_LINK = re.compile(
    r"^```.*?^```|`[^`\n]*`|(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)",
    re.DOTALL | re.MULTILINE,
)
"""Code stays; `k[grid](x)` is no link."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the root's pages."""
    root = posixpath.dirname(config.config_file_path)
    for source, page in ROOT_PAGES.items():
        with open(posixpath.join(root, source), encoding="utf-8") as file:
            files.append(File.generated(config, page, content=file.read()))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Links as they are said within the site."""
    folder = "" if page.file.src_uri in ROOT_PAGES.values() else "docs"

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match["words"], match["target"], match["anchor"] or ""
        if not target or "://" in target:
            return match[0]
        place = posixpath.normpath(posixpath.join(folder, target))
        uri = ROOT_PAGES.get(place, place.removeprefix("docs/"))
        return (
            f"{match['image']}[{words}]({uri}{anchor})" if files.get_file_from_path(uri) else words
        )

    return CODE_OR_LINK.sub(link, markdown)
