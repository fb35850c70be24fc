#!/usr/bin/env python3
"""Steadfast from a script, with nothing but ctypes: notes in an image file, several of them in one
transaction.

    examples/python/notes.py notes.img

STEADFAST_LIBRARY names the library where the dynamic linker does not find it.
"""

import ctypes
import os
import sys
from ctypes import (POINTER, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p)

sf = ctypes.CDLL(os.environ.get("STEADFAST_LIBRARY", "libsteadfast.so.1"))


class FormatOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("size", c_uint64),
        ("block_size", c_uint32),
        ("node_size", c_uint32),
        ("metadata_copies", c_uint32),
        ("mask", c_uint32),
        ("log_size", c_uint64),
        ("timer_ms", c_uint32),
        ("root_uid", c_uint32),
        ("root_gid", c_uint32),
        ("root_mode", c_uint32),
        ("uuid", c_uint8 * 16),
        ("label", c_char * 40),
    ]


class Entry(ctypes.Structure):
    _fields_ = [("inode", c_uint64), ("kind", c_uint32), ("length", c_uint32),
                ("name", c_char * 256)]


def declare(name, result, *arguments):
    function = getattr(sf, name)
    function.restype = result
    function.argtypes = arguments


declare("sf_last_error", c_char_p)
declare("sf_abi_version", c_uint32)
declare("sf_format_options_init", c_int, POINTER(FormatOptions), c_size_t)
declare("sf_format_image", c_int, c_char_p, POINTER(FormatOptions))
declare("sf_open_image", c_int, c_char_p, c_void_p, POINTER(c_void_p))
declare("sf_close", c_int, c_void_p)
declare("sf_write_file", c_int, c_void_p, c_char_p, c_char_p, c_size_t)
declare("sf_read_file", c_int64, c_void_p, c_char_p, c_char_p, c_size_t)
declare("sf_transact", c_int, c_void_p)
declare("sf_rollback", c_int, c_void_p)
declare("sf_dir_open", c_int, c_void_p, c_char_p, POINTER(c_void_p))
declare("sf_dir_read", c_int, c_void_p, POINTER(Entry))
declare("sf_dir_close", c_int, c_void_p)


def must(result):
    if result < 0:
        raise OSError(-result, sf.sf_last_error().decode())
    return result


class Volume:
    """A volume in an image file. As a context: a transaction, which an exception rolls back."""

    def __init__(self, image):
        self.handle = c_void_p()
        must(sf.sf_open_image(os.fsencode(image), None, byref(self.handle)))

    def close(self):
        handle, self.handle = self.handle, c_void_p()
        must(sf.sf_close(handle))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        must(sf.sf_transact(self.handle) if kind is None else sf.sf_rollback(self.handle))

    def write(self, path, data):
        must(sf.sf_write_file(self.handle, os.fsencode(path), data, len(data)))

    def read(self, path):
        size = must(sf.sf_read_file(self.handle, os.fsencode(path), None, 0))
        buffer = ctypes.create_string_buffer(max(size, 1))
        size = must(sf.sf_read_file(self.handle, os.fsencode(path), buffer, len(buffer)))
        return buffer.raw[:size]

    def names(self, path="/"):
        directory, entry = c_void_p(), Entry()
        must(sf.sf_dir_open(self.handle, os.fsencode(path), byref(directory)))
        try:
            while must(sf.sf_dir_read(directory, byref(entry))):
                yield os.fsdecode(entry.name)
        finally:
            sf.sf_dir_close(directory)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: notes.py IMAGE (is made, must not exist)")
    if sf.sf_abi_version() != 1:
        sys.exit("notes.py: another version of the library")
    options = FormatOptions()
    must(sf.sf_format_options_init(byref(options), ctypes.sizeof(options)))
    options.size = 4 << 20
    options.mask = 0  # only sf_transact makes things durable
    must(sf.sf_format_image(os.fsencode(sys.argv[1]), byref(options)))

    volume = Volume(sys.argv[1])
    with volume:
        volume.write("/monday", b"buy milk\n")
        volume.write("/tuesday", "café at five\n".encode())
    try:
        with volume:
            volume.write("/monday", b"")
            volume.write("/wednesday", b"half of it")
            raise RuntimeError("out of ideas")
    except RuntimeError as reason:
        print(f"rolled back: {reason}")
    try:
        volume.read("/wednesday")
    except FileNotFoundError as error:
        print(f"as it should be: {error}")
    for name in sorted(volume.names()):
        print(f"{name}: {volume.read(name).decode().strip()}")
    volume.close()


if __name__ == "__main__":
    main()
