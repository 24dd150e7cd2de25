"""System calls that a locked process has to do without, by their numbers on x86_64 and aarch64.

    lock.py --the numbers of this machine--> a filter in the kernel

`None`: that machine has no such call. What decides by an argument (clone, prctl, tgkill) is in lock.py.
"""

from __future__ import annotations

__all__ = [
    "CLONE",
    "CLONE3",
    "DENIED",
    "FILES",
    "MACHINE",
    "NETWORK",
    "OLD",
    "PRCTL",
    "PROGRAMS",
    "SECCOMP",
    "TGKILL",
    "TO_BEGIN",
    "Numbers",
]

Numbers = tuple[int | None, int | None]

PROGRAMS: dict[str, Numbers] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "setpgid": (109, 154),
    "setsid": (112, 157),
}
"""Programs and processes; clone is decided by its flags."""
NETWORK: dict[str, Numbers] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}
"""The network. Not sendto: asyncio wakes its loop with it, on a pair that was opened before."""
FILES: dict[str, Numbers] = {
    "openat": (257, 56),
    "openat2": (437, 437),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "mkdirat": (258, 34),
    "mknodat": (259, 33),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "linkat": (265, 37),
    "symlinkat": (266, 36),
    "readlinkat": (267, 78),
    "truncate": (76, 45),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "getdents64": (217, 61),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
}
"""Files: contents, names, and what Landlock does not cover, their metadata."""
OLD: dict[str, Numbers] = {
    "fork": (57, None),
    "vfork": (58, None),
    "open": (2, None),
    "creat": (85, None),
    "stat": (4, None),
    "lstat": (6, None),
    "access": (21, None),
    "getdents": (78, None),
    "rename": (82, None),
    "mkdir": (83, None),
    "rmdir": (84, None),
    "link": (86, None),
    "unlink": (87, None),
    "symlink": (88, None),
    "readlink": (89, None),
    "chmod": (90, None),
    "chown": (92, None),
    "lchown": (94, None),
    "utime": (132, None),
    "mknod": (133, None),
    "uselib": (134, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "iopl": (172, None),
    "ioperm": (173, None),
}
"""The old names of the same, which aarch64 never had."""
MACHINE: dict[str, Numbers] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setgroups": (116, 159),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "capset": (126, 91),
    "personality": (135, 92),
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
"""The machine and its other users; memory that others see."""
DENIED: dict[str, Numbers] = PROGRAMS | NETWORK | FILES | OLD | MACHINE
TO_BEGIN = frozenset(
    {"execve", "execveat", "open", "openat", "stat", "lstat", "newfstatat", "statx", "access", "faccessat"}
    | {"faccessat2", "readlink", "readlinkat", "prlimit64"}
)
"""What a program needs to be loaded, with its libraries. Which files it gets is for Landlock to say."""

CLONE, CLONE3 = (56, 220), (435, 435)
PRCTL, TGKILL = (157, 167), (234, 131)
SECCOMP = (317, 277)
