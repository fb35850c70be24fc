#!/usr/bin/env python3
"""The rows of bench/cluster.sh: what operations cost on a mount of one machine, on the owner of a
shared volume and on its peers, beside the goals and beside what RADOS itself needs.

Each round measures every row at every place, so a slow moment of the machine concerns all of them.
A figure is the median over the rounds."""

import argparse
import multiprocessing
import os
import re
import statistics
import subprocess
import time

COUNT = 200
BLOCK = 4096
LARGE = 128 << 20
CHUNK = 4 << 20
MAKERS = 4
MADE = 500


def each(act, count=COUNT):
    """Microseconds that one call takes."""
    begin = time.perf_counter()
    for number in range(count):
        act(number)
    return (time.perf_counter() - begin) / count * 1e6


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))


def look_for_a_while(names, fd):
    """Kernels are given what they may keep only some time after the last change."""
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        for name in names:
            os.stat(name)
        for block in range(64):
            os.pread(fd, BLOCK, block * BLOCK)


def small(place, other, number):
    """Rows of single operations at `place`; `other` is another node of the same volume, and idle.
    Programs on it use no names of the directory, which is of this round and place."""
    os.mkdir(f"{place}/{number}")
    base = f"{place}/{number}/"
    yield "create", each(lambda n: make(f"{base}{n}"))
    yield "stat", each(lambda n: os.stat(f"{base}{n}"))
    fd = os.open(f"{base}0", os.O_RDWR)
    block = os.urandom(BLOCK)
    yield "write 4 KiB", each(lambda n: os.pwrite(fd, block, n * BLOCK))
    yield "read 4 KiB", each(lambda n: os.pread(fd, BLOCK, n * BLOCK))
    few = [f"{base}{n}" for n in range(20)]
    reads = os.open(f"{base}0", os.O_RDONLY)
    look_for_a_while(few, reads)
    yield "stat again", each(lambda n: os.stat(few[n % len(few)]))
    yield "read 4 KiB again", each(lambda n: os.pread(reads, BLOCK, n % 64 * BLOCK))
    os.close(reads)
    if other:
        yield "stat, changed by another", changed_by_another(few, other, number)

    def durable(n):
        os.pwrite(fd, block, n * BLOCK)
        os.fsync(fd)

    yield "write 4 KiB + fsync", each(durable)
    os.close(fd)

    def create_durable(n):
        made = os.open(f"{base}durable-{n}", os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.fsync(made)
        os.close(made)

    yield "create + fsync", each(create_durable)
    yield "unlink", each(lambda n: os.unlink(f"{base}{n}"))


def changed_by_another(names, other, number):
    took = 0
    for n, name in enumerate(names):
        os.utime(f"{other}/{number}/{n}", (n, n))
        begin = time.perf_counter()
        found = os.stat(name)
        took += time.perf_counter() - begin
        assert found.st_mtime == n, f"{name}: an old time"
    return took / len(names) * 1e6


def in_turn(one, another, number, point):
    """Two nodes write into one file in turn, and each turn is a transaction point if `point`."""
    name = f"{number}-turns-{point}"
    make(f"{one}/{name}")
    fds = [os.open(f"{place}/{name}", os.O_RDWR) for place in (one, another)]
    block = os.urandom(BLOCK)

    def turn(n):
        fd = fds[n % 2]
        os.pwrite(fd, block, n % 64 * BLOCK)
        if point:
            os.fsync(fd)

    took = each(turn)
    for fd in fds:
        os.close(fd)
    return took


def maker(directory, start):
    start.wait()
    for number in range(MADE):
        make(f"{directory}/{number}")


def together(places, number):
    """Files a second that a process on each of `places` makes, each in a directory of its own."""
    start = multiprocessing.Barrier(MAKERS + 1)
    processes = []
    for index in range(MAKERS):
        directory = f"{places[index % len(places)]}/{number}-maker{index}"
        os.mkdir(directory)
        processes.append(multiprocessing.Process(target=maker, args=(directory, start)))
        processes[-1].start()
    start.wait()
    begin = time.perf_counter()
    for process in processes:
        process.join()
        assert process.exitcode == 0, "a process that makes files has failed"
    return MAKERS * MADE / (time.perf_counter() - begin)


def large(place, number):
    """MiB a second to write a file durably and to read it with nothing in the kernel's cache."""
    name, chunk = f"{place}/{number}-large", os.urandom(CHUNK)
    begin = time.perf_counter()
    fd = os.open(name, os.O_CREAT | os.O_RDWR)
    for _ in range(LARGE // CHUNK):
        assert os.write(fd, chunk) == CHUNK
    os.fsync(fd)
    yield "write 128 MiB + fsync", (LARGE >> 20) / (time.perf_counter() - begin)
    os.close(fd)
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as drop:
        drop.write("3")
    begin = time.perf_counter()
    fd = os.open(name, os.O_RDONLY)
    while os.read(fd, CHUNK):
        pass
    yield "read 128 MiB", (LARGE >> 20) / (time.perf_counter() - begin)
    os.close(fd)
    os.unlink(name)


def rados_bench(pool, *words):
    words = ["rados", "bench", "-p", pool, *words]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def of_rados(pool):
    """What RADOS needs for a write of 4 KiB, and reaches with 16 requests of 4 MiB."""
    shown = rados_bench(pool, "2", "write", "-b", str(BLOCK), "-t", "1")
    latency = float(re.search(r"Average Latency\(s\):\s+([\d.]+)", shown).group(1)) * 1e6
    yield "write 4 KiB + fsync", latency
    yield "create + fsync", latency
    bandwidth = re.compile(r"Bandwidth \(MB/sec\):\s+([\d.]+)")
    shown = rados_bench(pool, "2", "write", "-b", str(CHUNK), "-t", "16", "--no-cleanup")
    yield "write 128 MiB + fsync", float(bandwidth.search(shown).group(1))
    shown = rados_bench(pool, "2", "seq", "-t", "16")
    yield "read 128 MiB", float(bandwidth.search(shown).group(1))
    subprocess.run(["rados", "-p", pool, "cleanup"], check=True, capture_output=True)


# Row, unit, and goals: (place, "≤" or "≥", factor, of), where `of` is another place or None.
ROWS = [
    ("create", "µs", [("owner", "≤", 1.1, "local"), ("peer", "≤", 300, None)]),
    ("stat", "µs", []),
    ("stat again", "µs", [("peer", "≤", 1.0, "local")]),
    ("read 4 KiB again", "µs", [("peer", "≤", 1.0, "local")]),
    ("stat, changed by another", "µs", [("peer", "≤", 500, None)]),
    ("write 4 KiB", "µs", []),
    ("read 4 KiB", "µs", []),
    ("write 4 KiB + fsync", "µs", [("peer", "≤", 2.0, "rados")]),
    ("create + fsync", "µs", [("peer", "≤", 2.0, "rados")]),
    ("unlink", "µs", []),
    ("owner and peer write 4 KiB in turn", "µs", [("nodes", "≤", 300, None)]),
    ("the same, each turn a point", "µs", [("nodes", "≤", 3000, None)]),
    ("creates by 4 processes", "/s", [("nodes", "≥", 8000, None), ("nodes", "≥", 0.7, "local")]),
    ("write 128 MiB + fsync", "MiB/s", [("peer", "≥", 0.8, "rados")]),
    ("read 128 MiB", "MiB/s", [("peer", "≥", 0.8, "rados")]),
]
PLACES = ["local", "owner", "peer", "nodes", "rados"]


def judge(medians, goals):
    for place, relation, figure, of in goals:
        if place not in medians or (of and of not in medians):
            continue
        reached = medians[place] / (medians[of] if of else 1)
        met = reached <= figure if relation == "≤" else reached >= figure
        beside = f" × {of}" if of else ""
        reached = f"{reached:.2f}" if of else f"{reached:.0f}"
        yield f"{place} {reached}{beside} ({relation} {figure:g}: {'met' if met else 'missed'})"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--pool", help="a pool of RADOS to measure beside")
    parser.add_argument("--local", required=True, help="a mount of one machine")
    parser.add_argument("nodes", nargs=4, help="mounts of the nodes, the owner's first")
    options = parser.parse_args()
    owner, peer = options.nodes[:2]
    found = {}

    def add(row, place, figure):
        found.setdefault(row, {}).setdefault(place, []).append(figure)

    places = [("local", options.local, None), ("owner", owner, peer), ("peer", peer, owner)]
    for number in range(options.rounds):
        for name, place, other in places:
            for act in (small(place, other, f"{name}{number}"), large(place, f"{name}{number}")):
                for row, figure in act:
                    add(row, name, figure)
        turns = "owner and peer write 4 KiB in turn"
        add(turns, "nodes", in_turn(owner, peer, number, False))
        add("the same, each turn a point", "nodes", in_turn(owner, peer, number, True))
        add("creates by 4 processes", "local", together([options.local], number))
        add("creates by 4 processes", "nodes", together(options.nodes, number))
        for row, figure in of_rados(options.pool) if options.pool else ():
            add(row, "rados", figure)

    print(f"{'':36}" + "".join(f"{place:>9}" for place in PLACES) + "        goals")
    for row, unit, goals in ROWS:
        medians = {place: statistics.median(all) for place, all in found.get(row, {}).items()}
        shown = "".join(
            f"{medians[place]:9.1f}" if place in medians else f"{'':9}" for place in PLACES
        )
        print(f"{row:36}{shown}  {unit:5} {'; '.join(judge(medians, goals))}")


if __name__ == "__main__":
    main()
