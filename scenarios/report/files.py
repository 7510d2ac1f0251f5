"""Writing a report so that a reader finds the old file or the new one, never half of one."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` with `text` (UTF-8) in one step, also when the machine stops in the middle.

    Raises OSError when the directory is missing or not writable; a file already at `path` is then untouched.
    """
    # The temporary file is beside the target because a rename is atomic only inside one file system.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
