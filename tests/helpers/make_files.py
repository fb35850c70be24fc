"""Creates many small files: make_files.py DIRECTORY COUNT [BYTES-EACH], 1000 per directory."""

import os
import sys


def main():
    directory, count = sys.argv[1], int(sys.argv[2])
    data = b"x" * (int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    for number in range(count):
        if number % 1000 == 0:
            place = f"{directory}/{number // 1000:05d}"
            os.makedirs(place)
        descriptor = os.open(f"{place}/file-{number:07d}", os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                             0o644)
        if data:
            os.write(descriptor, data)
        os.close(descriptor)


if __name__ == "__main__":
    main()
