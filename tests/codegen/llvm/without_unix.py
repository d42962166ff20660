"""A process without what Windows lacks: it imports metaop, trains a network for two steps and more.

Python's library and what metaop is built on are imported first, because they know where they are.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import multiprocessing.reduction
import os
import platform
import select
import signal
import socket
import sys
import tempfile

BEFORE = (
    *("asyncio", "cffi", "concurrent.futures", "llvmlite.binding", "logging", "ml_dtypes"),
    *("multiprocessing.managers", "multiprocessing.pool", "multiprocessing.spawn", "networkx"),
    *("numpy", "safetensors.numpy", "subprocess", "tqdm"),
)
MODULES = (
    *("curses", "fcntl", "grp", "nis", "ossaudiodev", "posix", "pty", "pwd", "readline"),
    *("resource", "spwd", "syslog", "termios", "tty"),
)
NAMES = {
    os: (
        *("chown", "chroot", "confstr", "ctermid", "eventfd", "fchdir", "fchmod", "fchown", "fork"),
        *("forkpty", "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid"),
        *("getpriority", "getuid", "killpg", "lchown", "major", "memfd_create", "mkfifo", "mknod"),
        *("nice", "openpty", "pathconf", "pidfd_open", "posix_fadvise", "posix_fallocate"),
        *("posix_spawn", "pread", "preadv", "pwrite", "pwritev", "register_at_fork"),
        *("sched_getaffinity", "sched_setaffinity", "sched_yield", "sendfile", "setpgid"),
        *("setpriority", "setsid", "setuid", "splice", "statvfs", "sync", "sysconf", "tcgetpgrp"),
        *("ttyname", "uname", "wait", "wait3", "wait4", "waitid", "WNOHANG", "O_CLOEXEC"),
        *("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC"),
    ),
    signal: (
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP"),
        *("SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "alarm", "pause", "pthread_kill"),
        *("pthread_sigmask", "setitimer", "siginterrupt", "sigwait"),
    ),
    mmap: (
        *("MAP_ANON", "MAP_ANONYMOUS", "MAP_PRIVATE", "MAP_SHARED", "PROT_EXEC"),
        *("PROT_READ", "PROT_WRITE", "MADV_DONTNEED"),
    ),
    select: ("poll", "epoll"),
    socket: ("AF_UNIX", "socketpair", "SCM_RIGHTS"),
    multiprocessing.reduction: ("DupFd",),
}


class Kernel32:
    """Tells how much memory there is, as the library of this name does on Windows."""

    def GlobalMemoryStatusEx(self, status: ctypes.Array[ctypes.c_uint64]) -> int:
        assert status[0] == ctypes.sizeof(status) == 64
        status[1] = 8 << 30
        return 1


def hide() -> None:
    """Takes away what Windows lacks; Python's own modules hold what they took before."""
    for module in BEFORE:
        importlib.import_module(module)
    platform.uname()  # it is remembered
    real = ctypes.CDLL
    ctypes.CDLL = lambda name, *a, **k: (  # type: ignore[assignment, misc]
        Kernel32() if name == "kernel32" else real(name, *a, **k)
    )
    for missing in MODULES:
        sys.modules[missing] = None  # type: ignore[assignment]
    for holder, names in NAMES.items():
        for name in names:
            if hasattr(holder, name):
                delattr(holder, name)


if __name__ == "__main__":
    hide()
    import metaop
    from metaop import nn

    metaop.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    optimizer = metaop.optim.Adam(model.parameters(), lr=1e-2)
    x, y = metaop.randn(16, 1, 8, 8), metaop.arange(16) % 3
    losses = []
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0], losses
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt")
        metaop.save(model.state_dict(), path)
        model.load_state_dict(metaop.load(path))
    print(*losses, sep="\n")
