"""Sets, reads and removes extended attributes in its working directory, and prints what came of each call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def told(call: Callable[..., Any], *arguments: Any, **how: bool) -> None:
    try:
        found = call(*arguments, **how)
    except OSError as error:
        found = error.strerror
    print(call.__name__, arguments[0], sorted(found) if isinstance(found, list) else found)


os.mkdir("directory")
with open("file", "w") as file:
    file.write("text")
os.symlink("file", "link")
for name in ("file", "directory", "link"):
    told(os.setxattr, name, "user.one", b"1" * 100)
    told(os.setxattr, name, "user.one", b"2", os.XATTR_CREATE)
    told(os.setxattr, name, "user.two", bytes(range(256)), os.XATTR_CREATE)
    told(os.setxattr, name, "user.empty", b"")
    told(os.listxattr, name)
    for attribute in ("user.one", "user.two", "user.empty", "user.none"):
        told(os.getxattr, name, attribute)
    told(os.removexattr, name, "user.one")
    told(os.removexattr, name, "user.one")
    fd = os.open(name, os.O_RDONLY)
    told(os.setxattr, fd, "user.by", b"descriptor")
    told(os.listxattr, fd)
    told(os.getxattr, fd, "user.by")
    told(os.removexattr, fd, "user.by")
    told(os.getxattr, fd, "user.by")
    os.close(fd)
told(os.setxattr, "link", "user.x", b"x", follow_symlinks=False)
told(os.listxattr, "link", follow_symlinks=False)
told(os.setxattr, "none", "user.x", b"x")
told(os.setxattr, "file", "user.large", b"x" * 70000)
told(os.getxattr, "file", "user." + "x" * 300)
