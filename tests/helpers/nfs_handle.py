"""An NFS 3 client that keeps the handle of an open file: nfs_handle.py EXPORT PATH

Reads the file and prints it. Then, for each line on standard input, reads the file again through
the same handle, prints it, and writes the line to it.
"""

import ctypes
import os
import sys

nfs = ctypes.CDLL("libnfs.so.13")
nfs.nfs_init_context.restype = ctypes.c_void_p
nfs.nfs_get_error.restype = ctypes.c_char_p
nfs.nfs_get_error.argtypes = [ctypes.c_void_p]
context = ctypes.c_void_p(nfs.nfs_init_context())
handle = ctypes.c_void_p()


def must(result):
    if result < 0:
        sys.exit(f"error {-result}: {nfs.nfs_get_error(context).decode()}")
    return result


def show():
    buffer = ctypes.create_string_buffer(4096)
    count = must(nfs.nfs_pread(context, handle, ctypes.c_uint64(0), ctypes.c_uint64(len(buffer)),
                               buffer))
    print(buffer.raw[:count].decode(), flush=True)


nfs.nfs_set_version(context, 3)
must(nfs.nfs_mount(context, b"127.0.0.1", os.fsencode(sys.argv[1])))
must(nfs.nfs_open(context, os.fsencode(sys.argv[2]), os.O_RDWR, ctypes.byref(handle)))
show()
for line in sys.stdin:
    show()
    data = line.strip().encode()
    must(nfs.nfs_pwrite(context, handle, ctypes.c_uint64(0), ctypes.c_uint64(len(data)), data))
