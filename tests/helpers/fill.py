"""Fills a file system and reports the result.

Usage: fill.py DIRECTORY METHOD [LIMIT-MIB]

Methods: `synced` appends with fsync. `buffered` writes without fsync and checks every error up to
close. `files` creates small files. `names` creates empty files and directories. `mapped` stores
through a shared map. Each method ends at the first error, which must be ENOSPC. The error must
occur before LIMIT-MIB (default 1024) MiB or as many thousand names are used. Prints the number of
accepted bytes or names. Synced data is read back and must be correct.
"""

import errno
import hashlib
import mmap
import os
import sys

MIB = 1 << 20


def expect_full(error, where):
    if error.errno != errno.ENOSPC:
        sys.exit(f"{where}: expected ENOSPC, got {errno.errorcode.get(error.errno, error.errno)}")


def block(number):
    return hashlib.sha256(str(number).encode()).digest() * (65536 // 32)


def verify(path, length):
    """Checks that the first `length` bytes are the written blocks."""
    with open(path, "rb") as file:
        for number in range(length // 65536):
            if file.read(65536) != block(number):
                sys.exit(f"{path}: block {number} of {length // 65536} that were synced is wrong")


def synced(directory, limit):
    path = f"{directory}/synced"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    kept = 0
    try:
        while kept < limit:
            data = block(kept // 65536)
            if os.write(descriptor, data) != len(data):
                break
            os.fsync(descriptor)
            kept += len(data)
        else:
            sys.exit(f"{kept} bytes were accepted and synced, the file system is smaller")
    except OSError as error:
        expect_full(error, "write or fsync")
    try:
        os.close(descriptor)
    except OSError as error:
        expect_full(error, "close")
    verify(path, kept)
    return kept


def buffered(directory, limit):
    descriptor = os.open(f"{directory}/buffered", os.O_CREAT | os.O_WRONLY)
    written, seen = 0, None
    try:
        while written < limit:
            written += os.write(descriptor, b"b" * 65536)
    except OSError as error:
        expect_full(error, "write")
        seen = "write"
    # A kernel that caches writes may detect the error only at write-back.
    for call in (os.fsync, os.close):
        try:
            call(descriptor)
        except OSError as error:
            expect_full(error, call.__name__)
            seen = seen or call.__name__
    if not seen:
        sys.exit(f"{written} bytes were accepted without any error, up to fsync and close")
    return f"{written}, reported by {seen}"


def files(directory, limit):
    place = f"{directory}/files"
    os.mkdir(place)
    count = 0
    try:
        while count < limit // 1000:
            descriptor = os.open(f"{place}/{count}", os.O_CREAT | os.O_WRONLY)
            try:
                if os.write(descriptor, b"f" * 5000) < 5000:
                    break
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            count += 1
        else:
            sys.exit(f"{count} files were accepted")
    except OSError as error:
        expect_full(error, "create, write or fsync")
    for number in range(count):
        with open(f"{place}/{number}", "rb") as file:
            if file.read() != b"f" * 5000:
                sys.exit(f"file {number} of {count} that were synced is wrong")
    return count


def names(directory, limit):
    place = f"{directory}/names"
    count = 0
    try:
        os.mkdir(place)
        while count < limit // 1000:
            os.mkdir(f"{place}/directory-{count:0200d}")
            os.close(os.open(f"{place}/file-{count:0200d}", os.O_CREAT | os.O_WRONLY))
            count += 1
        else:
            sys.exit(f"{count} names were accepted")
    except OSError as error:
        expect_full(error, "mkdir or create")
    return count


def mapped(directory, limit):
    descriptor = os.open(f"{directory}/mapped", os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, limit)
    view = mmap.mmap(descriptor, limit)
    kept = 0
    try:
        while kept < limit:
            view[kept : kept + MIB] = b"m" * MIB
            view.flush(kept, MIB)
            kept += MIB
        else:
            sys.exit(f"{kept} bytes were stored and flushed")
    except OSError as error:
        expect_full(error, "msync")
    return kept


def main():
    directory, method = sys.argv[1:3]
    limit = (int(sys.argv[3]) if len(sys.argv) > 3 else 1024) * MIB
    methods = {"synced": synced, "buffered": buffered, "files": files, "names": names,
               "mapped": mapped}
    print(methods[method](directory, limit))
    # Open and mapped files have reported their error; exiting must not cause another one.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
