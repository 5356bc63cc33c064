#!/usr/bin/env bash
# Cuts the power of a filesystem: powercut.sh FILESYSTEM KIND ROUNDS DIR COMMAND...   (as root)
#
# Each round makes a filesystem (ext4 or xfs) on an image in DIR and mounts it, runs `COMMAND prepare` and syncs, starts
# `COMMAND work`, waits until it says that it is ready and then for a random time, cuts the power, kills the work, mounts
# the filesystem again and runs `COMMAND check`. They get MNT, the filesystem; FM, an empty directory to mount on; and
# OUT, a directory that is not cut, where the work makes a file `ready` and the cut is noted in `cut`, in seconds of
# CLOCK_MONOTONIC. A round passes if `check` does and the filesystem is clean. KIND is one of
#
#   nologflush  what the filesystem has not sent to the disk is gone (FS_IOC_GOINGDOWN)
#   logflush    the same, but its journal is written: names and sizes without their bytes
#   volatile    a disk with a write-back cache loses all that was written since the last flush
#
# The last line is `N passed, N failed`. What a failed round left is kept in DIR/failed-N.
set -euo pipefail

FILESYSTEM=$1 KIND=$2 ROUNDS=$3 DIR=$4
shift 4
COMMAND=("$@")
SHORTEST_MS=${SHORTEST_MS:-400} LONGEST_MS=${LONGEST_MS:-2600}
IMAGE=$DIR/disk.img DISK=$DIR/disk
export MNT=$DIR/mnt OUT=$DIR/out FM=$DIR/fuse
LOOP='' NBDKIT='' NBDFUSE='' WORKER='' RUNNING=''
PASSED=0 FAILED=0

# On the image as a file: for a block device mkfs.xfs and xfs_repair first ask every mount of the machine for its attributes,
# dead ones too.
make_filesystem() {
    case $FILESYSTEM in
        ext4) mkfs.ext4 -q -F "$IMAGE" ;;
        xfs) mkfs.xfs -q -f "$IMAGE" ;;
        *) echo "unknown filesystem $FILESYSTEM" >&2 && return 1 ;;
    esac
}

check_filesystem() {
    case $FILESYSTEM in
        ext4) e2fsck -fn "$IMAGE" ;;
        xfs) xfs_repair -n -f "$IMAGE" ;;
    esac >"$OUT/fsck.log" 2>&1
}

# Waits up to five seconds until a command succeeds.
wait_until() {
    local i
    for ((i = 0; i < 250; i++)); do
        "$@" 2>/dev/null && return 0
        sleep 0.02
    done
    return 1
}

is_mounted() { awk -v dir="$1" '$5 == dir { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# Sets LOOP to a block device with the image. For `volatile` a server stands between that caches what is written.
start_disk() {
    local file=$IMAGE
    if [ "$KIND" = volatile ]; then
        rm -f "$DIR/nbd.sock"
        setsid nbdkit -f -U "$DIR/nbd.sock" --filter=cache file "$IMAGE" cache=writeback >"$OUT/nbdkit.log" 2>&1 &
        NBDKIT=$!
        disown
        wait_until [ -S "$DIR/nbd.sock" ]
        mkdir -p "$DISK"
        setsid nbdfuse "$DISK/image" "nbd+unix:///?socket=$DIR/nbd.sock" >"$OUT/nbdfuse.log" 2>&1 &
        NBDFUSE=$!
        disown
        file=$DISK/image
        wait_until [ -e "$file" ]
    fi
    LOOP=$(losetup -f --show "$file")
}

stop_disk() {
    [ -z "$LOOP" ] || losetup -d "$LOOP" || true
    LOOP=
    ! is_mounted "$DISK" || umount -l "$DISK" || true
    end "$NBDFUSE"
    end "$NBDKIT"
    NBDFUSE='' NBDKIT=''
}

# Kills a process that was started here.
end() { [ -z "$1" ] || kill -9 "$1" 2>/dev/null || true; }

# Runs a step of COMMAND so that a signal can end it.
run() {
    local status=0
    setsid "${COMMAND[@]}" "$1" >"$OUT/$1.log" 2>&1 &
    RUNNING=$!
    wait "$RUNNING" || status=$?
    RUNNING=
    return "$status"
}

has_ended() { ! kill -0 "$1"; }

# Kills the work with all that it started.
end_worker() {
    [ -n "$WORKER" ] || return 0
    kill -9 -- "-$WORKER" 2>/dev/null || true
    force_mount
    wait_until has_ended "$WORKER" || true
    WORKER=
}

# A daemon that was killed while the kernel waited for it, and it for the kernel, ends only when its mount is forced.
force_mount() { ! is_mounted "$FM" || umount -f "$FM" 2>/dev/null || umount -l "$FM" || true; }

release_mounts() {
    force_mount
    is_mounted "$MNT" || return 0
    wait_until umount "$MNT" || umount -l "$MNT"
}

clean_up() {
    set +e
    trap '' INT TERM HUP
    end_worker
    [ -z "$RUNNING" ] || kill -9 -- "-$RUNNING" 2>/dev/null
    release_mounts
    stop_disk
    rm -f "$IMAGE"
}

# Notes the time and cuts. The filesystem is told by FS_IOC_GOINGDOWN (fs/xfs/libxfs/xfs_fs.h, and the same in
# fs/ext4/ext4.h) and not by xfs_io(8), which asks every mount of the machine, too.
cut_power() {
    python3 -c '
import fcntl, os, signal, struct, sys, time
out, kind, mount, disk = sys.argv[1:]
FS_IOC_GOINGDOWN, FLAGS = 0x8004587D, {"logflush": 1, "nologflush": 2}
root = os.open(mount, os.O_RDONLY)
with open(f"{out}/cut", "w") as cut:
    print(time.monotonic(), file=cut)
if kind == "volatile":
    os.kill(int(disk), signal.SIGKILL)
else:
    fcntl.ioctl(root, FS_IOC_GOINGDOWN, struct.pack("I", FLAGS[kind]))
' "$OUT" "$KIND" "$MNT" "${NBDKIT:-0}"
}

# Works until the power is cut: the filesystem is unmounted then, and its disk is gone.
work_until_cut() {
    local ms=$((SHORTEST_MS + (RANDOM * 32768 + RANDOM) % (LONGEST_MS - SHORTEST_MS + 1)))
    make_filesystem && start_disk && mount "$LOOP" "$MNT" || return 1
    run prepare || return 1
    sync -f "$MNT"
    setsid "${COMMAND[@]}" work >"$OUT/work.log" 2>&1 &
    WORKER=$!
    disown
    wait_until [ -e "$OUT/ready" ] || return 1
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))" &
    wait $!
    cut_power || return 1
    end_worker
    release_mounts
    stop_disk
}

check_after_cut() {
    local status=0
    LOOP=$(losetup -f --show "$IMAGE") && mount "$LOOP" "$MNT" || return 1
    run check || status=1
    release_mounts
    stop_disk
    check_filesystem || status=1
    return "$status"
}

run_round() {
    local round=$1 verdict=FAILED
    rm -rf "$OUT" "$IMAGE"
    mkdir -p "$OUT"
    truncate -s 400M "$IMAGE"
    if work_until_cut && check_after_cut; then
        verdict=ok
        PASSED=$((PASSED + 1))
    else
        FAILED=$((FAILED + 1))
        end_worker
        release_mounts
        stop_disk
        cp -r "$OUT" "$DIR/failed-$FILESYSTEM-$KIND-$round-$$"
    fi
    echo "$verdict $FILESYSTEM $KIND $round: $(tail -n 1 "$OUT/check.log" 2>/dev/null || tail -n 1 "$OUT/prepare.log")"
    [ "$verdict" = ok ] || grep -s '^LOST' "$OUT/check.log" || true
}

mkdir -p "$MNT" "$FM"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
for ((round = 1; round <= ROUNDS; round++)); do
    run_round "$round"
done
echo "$PASSED passed, $FAILED failed"
[ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
