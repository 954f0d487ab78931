"""Names of files that are URLs: what is one, its scheme, what it is called where it was fetched, and its secrets."""

from __future__ import annotations

import posixpath
import re
import urllib.parse

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://.")
HIDDEN = "(secret)"
#: The text before the machine in an address may be a name and a key, and so may the query.
_IN_URL = re.compile(r"(\w+://)[^/?#\s@]*@")
_IN_QUERY = re.compile(r"([?&;][^=&;\s]*(?:pass|secret|token|key|sig|credential)[^=&;\s]*=)[^&;,\s\"']*", re.IGNORECASE)
#: The scheme of files on the submit machine, which are sent as any other.
LOCAL_SCHEME = "file"


def scheme_of(name: str) -> str:
    """The scheme of a URL in lower case; empty for a plain file name."""
    found = _URL.match(name)
    return found[1].lower() if found else ""


def is_fetched(name: str) -> bool:
    """Whether an input is fetched on the execute machine instead of being sent from the submit side."""
    return scheme_of(name) not in ("", LOCAL_SCHEME)


def submit_path(name: str) -> str:
    """The file on the submit machine that an input names: itself, or that of a `file:` URL."""
    return urllib.parse.unquote(urllib.parse.urlsplit(name).path) if scheme_of(name) == LOCAL_SCHEME else name


def name_of(url: str) -> str:
    """The name of a fetched file in the job's directory: the last part of the path, without its query."""
    return posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(url).path)) or scheme_of(url)


def without_secrets(text: str) -> str:
    """A text with URLs as others may read it: without users, passwords, and questions that are keys or signatures."""
    if "://" not in text:
        return text
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", _IN_URL.sub(rf"\g<1>{HIDDEN}@", text))
