#!/usr/bin/env bash
# Two builds of the program beside each other: the core without a mount, through its own commands.
#
# STEADFAST_BEFORE names the other build. Each command runs with both in turn, ROUNDS (default 7)
# times. A line has the processor's time and the time that passes: medians, and the median of the
# ratios. `bench/writers.sh` compares two builds through the mount. (`make count` counts
# instructions, but only of builds that have that program.)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

before=$(realpath "${STEADFAST_BEFORE:?names the other build of steadfast}")
need_cargo
need_packages python3
"${CARGO:-cargo}" build --release --locked -p steadfast-cli
now=$(realpath "${STEADFAST:-$(target_directory)/release/steadfast}")
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/steadfast-bench.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

echo "$(uname -sr), $(nproc) processors, median of ${ROUNDS:-7} rounds"
python3 - "$scratch" "$before" "$now" "${ROUNDS:-7}" <<'PY'
import os, random, resource, shutil, statistics, subprocess, sys, time

scratch, before, now, rounds = sys.argv[1:4] + [int(sys.argv[4])]
image, got = scratch + "/image", scratch + "/got"


def tree(name, files, size):
    """Files of about this size, in directories of 100."""
    rng, root = random.Random(1), f"{scratch}/{name}"
    for number in range(files):
        os.makedirs(f"{root}/{number // 100}", exist_ok=True)
        with open(f"{root}/{number // 100}/{number}", "wb") as file:
            file.write(rng.randbytes(rng.randrange(size // 2, size + size // 2)))
    return name, root


def run(*command):
    subprocess.run(command, capture_output=True, check=True)


def measure(program, root):
    """The times of each command on a new volume: of the processor, and what passes."""
    shutil.rmtree(got, ignore_errors=True)
    run(program, "mkfs", "--force", "--size", "512M", image)
    commands = {
        "put -r": ["put", "-r", image, root],
        "check": ["check", image],
        "get -r": ["get", "-r", image, "/", got],
    }
    times = {}
    for name, command in commands.items():
        start, used = time.monotonic(), processor()
        run(program, *command)
        times[name] = processor() - used, time.monotonic() - start
    return times


def processor():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


for name, root in (tree("3,000 files of 2 KiB", 3000, 2048),
                   tree("60 files of 2 MiB", 60, 1 << 21)):
    times = {before: [], now: []}
    for turn in range(rounds):
        for program in (before, now) if turn % 2 else (now, before):
            times[program].append(measure(program, root))
    for command in times[now][0]:
        line = f"{command:<7} {name:<22}"
        for which, kind in enumerate(("processor", "passed")):
            olds, news = ([each[command][which] for each in times[one]] for one in (before, now))
            ratio = statistics.median(new / old for old, new in zip(olds, news))
            line += (f"  {kind} {statistics.median(olds) * 1e3:,.0f} ms before, "
                     f"{statistics.median(news) * 1e3:,.0f} now, {ratio:.2f} x")
        print(line)
PY
