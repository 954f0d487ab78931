"""Mail through the machine's own sendmail interface, where there is one (A10)."""

from __future__ import annotations

import asyncio
import os
import shutil

from pool.errors import PoolError

CANDIDATES = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
PATIENCE = 60.0


class MailFailed(PoolError):
    """The mail system took the message and did not send it."""


def find_sendmail(setting: str) -> str | None:
    """The sendmail program: the setting MAIL (a path, or `none`), else the usual places."""
    if setting.lower() == "none":
        return None
    if setting:
        return setting if os.access(setting, os.X_OK) else None
    return next((path for path in CANDIDATES if os.access(path, os.X_OK)), None) or shutil.which("sendmail")


async def send_mail(setting: str, to: str, subject: str, text: str) -> bool:
    """Send a message; False where this machine has no mail system.

    Raises:
        MailFailed: the mail system refused it.
    """
    program = find_sendmail(setting)
    if program is None:
        return False
    from email.message import EmailMessage

    message = EmailMessage()
    message["To"] = to
    message["Subject"] = subject
    message.set_content(text)
    return await asyncio.get_running_loop().run_in_executor(None, _send, program, to, bytes(message))


def _send(program: str, to: str, message: bytes) -> bool:
    read, write = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, read, 0),
            (os.POSIX_SPAWN_CLOSE, write),
        ]
        pid = os.posix_spawn(program, [program, "-i", "--", to], dict(os.environ), file_actions=actions)
    except OSError as error:
        os.close(write)
        raise MailFailed(f"cannot run {program}: {error.strerror}") from error
    finally:
        os.close(read)
    with os.fdopen(write, "wb") as pipe:
        try:
            pipe.write(message)
        except BrokenPipeError:
            pass
    _, status = os.waitpid(pid, 0)
    if status:
        raise MailFailed(f"{program} ended with status {os.waitstatus_to_exitcode(status)}")
    return True
