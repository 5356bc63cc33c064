# shellcheck shell=bash
# Shared by the scripts: packages, users and mounts. To be sourced; it changes nothing until a function is called.
#
# What a script mounts or starts it tells `track_mount` and `track_pid`; after `clean_up_at_exit` all of it is unmounted
# and stopped, whichever way the script ends. Nothing is ever killed by name.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TEST_USER=leasehold-test
APT_UPDATED=
TRACKED_MOUNTS=()
TRACKED_PIDS=()
TRACKED_DIRS=()

say() { printf '%s\n' "$@"; }
warn() { printf '%s\n' "$@" >&2; }
die() {
    warn "$(basename "$0"): $*"
    exit 1
}
is_root() { [ "$(id -u)" = 0 ]; }
# Says whether a command, or a file given by its absolute path, is there.
have() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# Runs a command as root: directly, or by sudo for an ordinary user.
as_root() {
    if is_root; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        return 1
    fi
}

# Runs apt-get without questions and without noise; waits for another apt for up to 5 minutes.
apt_quietly() {
    local log
    log=$(mktemp)
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# Installs Debian packages: need_packages PACKAGE:COMMAND... installs each PACKAGE whose COMMAND (or file) is absent.
need_packages() {
    local pair missing=()
    for pair; do
        have "${pair#*:}" || missing+=("${pair%%:*}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ -z "$APT_UPDATED" ]; then
        apt_quietly update || warn "the package lists could not be refreshed; trying with the old ones"
        APT_UPDATED=1
    fi
    apt_quietly install -y --no-install-recommends "${missing[@]}" ||
        die "these packages are missing: ${missing[*]}. Install them as root: apt-get install ${missing[*]}"
}

# Lets ordinary users open /dev/fuse, as common systems do; some containers give it to root alone.
open_fuse_device() {
    [ -e /dev/fuse ] || die "/dev/fuse is missing: this kernel or container has no FUSE"
    [ -w /dev/fuse ] && ! is_root && return 0
    [ "$(stat -c %a /dev/fuse)" = 666 ] || as_root chmod 666 /dev/fuse ||
        die "/dev/fuse can't be opened; as root: chmod 666 /dev/fuse"
}

# Lets ordinary users mount with allow_other.
allow_other_for_users() {
    grep -qs '^user_allow_other' /etc/fuse.conf || echo user_allow_other | as_root tee -a /etc/fuse.conf >/dev/null
}

# Makes the ordinary user whom the tests run as.
need_test_user() {
    getent passwd "$TEST_USER" >/dev/null || as_root useradd --create-home --shell /bin/bash "$TEST_USER"
}

# Runs a command as the ordinary test user, in that user's home: where the sources are that user may not be let in.
as_test_user() {
    local home
    home=$(getent passwd "$TEST_USER" | cut -d: -f6)
    setpriv --reuid "$TEST_USER" --regid "$TEST_USER" --init-groups \
        env --chdir="$home" -u SUDO_USER HOME="$home" USER="$TEST_USER" LOGNAME="$TEST_USER" "$@"
}

# Says whether DIR is a mount point now. Reads the kernel's list, since a dead mount can't be asked.
is_mounted() { awk -v dir="$1" '$5 == dir { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# Unmounts DIR: by leasehold, which waits until all is settled, then by the system's tools, at last by detaching it.
# Never fails.
unmount_dir() {
    local dir=$1
    is_mounted "$dir" || return 0
    [ -z "${LEASEHOLD:-}" ] || timeout 30 "$LEASEHOLD" umount "$dir" >/dev/null 2>&1 || true
    is_mounted "$dir" || return 0
    umount "$dir" 2>/dev/null || fusermount3 -u "$dir" 2>/dev/null || true
    is_mounted "$dir" || return 0
    sleep 0.5
    umount "$dir" 2>/dev/null || umount -l "$dir" 2>/dev/null || fusermount3 -uz "$dir" 2>/dev/null ||
        warn "$dir is still mounted: run fusermount3 -uz $dir"
}

# Waits until DIR is mounted, for at most ten seconds.
wait_for_mount() {
    local i
    for ((i = 0; i < 200; i++)); do
        is_mounted "$1" && return 0
        sleep 0.05
    done
    die "$1 was not mounted within 10 s"
}

# Ends a process that this script started, and waits until it is gone: TERM, and KILL after five seconds.
stop_pid() {
    local pid=$1 i
    kill "$pid" 2>/dev/null || return 0
    for ((i = 0; i < 100; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

# Removes a directory in which a process that just ended may have been writing still.
remove_dir() {
    rm -rf --one-file-system "$1" 2>/dev/null && return
    sleep 1
    rm -rf --one-file-system "$1" || warn "$1 could not be removed"
}

track_mount() { TRACKED_MOUNTS+=("$1"); }
track_pid() { TRACKED_PIDS+=("$1"); }
track_dir() { TRACKED_DIRS+=("$1"); }

# Undoes what was tracked, newest mount first.
clean_up() {
    local status=$? i pid dir
    trap - EXIT
    trap '' INT TERM HUP
    set +e
    for ((i = ${#TRACKED_MOUNTS[@]} - 1; i >= 0; i--)); do
        unmount_dir "${TRACKED_MOUNTS[i]}"
    done
    for pid in "${TRACKED_PIDS[@]}"; do
        stop_pid "$pid"
    done
    for dir in "${TRACKED_DIRS[@]}"; do
        remove_dir "$dir"
    done
    exit "$status"
}

clean_up_at_exit() {
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Makes a directory for this run that ordinary users can enter, removed at exit; sets WORK.
# /var/tmp, because /tmp may be memory, where neither speed nor durability is that of a disk.
make_work_dir() {
    WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/leasehold.XXXXXX")
    chmod 755 "$WORK"
    track_dir "$WORK"
}

# Builds the program, `debug` or `release`, and sets LEASEHOLD to it. With a work directory it is a copy in there, which
# ordinary users can run wherever the sources are, and which a later build doesn't replace under a running mount.
# LEASEHOLD_BIN, if set, is taken instead of a build.
need_leasehold() {
    if [ -n "${LEASEHOLD_BIN:-}" ]; then
        LEASEHOLD=$LEASEHOLD_BIN
    else
        build_leasehold "$1"
    fi
    [ -n "${WORK:-}" ] || return 0
    install -D -m 755 "$LEASEHOLD" "$WORK/bin/leasehold"
    LEASEHOLD=$WORK/bin/leasehold
}

build_leasehold() {
    local profile=$1 flags=()
    [ "$profile" = debug ] || flags=(--release)
    have cargo || die "Rust is missing: see https://rustup.rs"
    (cd "$REPO" && cargo build --locked --quiet --bin leasehold "${flags[@]}") || die "the build failed"
    LEASEHOLD=$(cargo_target_dir)/$profile/leasehold
}

cargo_target_dir() {
    (cd "$REPO" && cargo metadata --format-version 1 --no-deps --locked) |
        sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

# Runs a command as the one whose mounts are under test: PRINCIPAL is `user` for the ordinary test user, else oneself.
as_principal() {
    if [ "${PRINCIPAL:-self}" = user ]; then
        as_test_user "$@"
    else
        "$@"
    fi
}

# Makes a directory that belongs to the principal.
principal_dir() {
    mkdir -p "$1"
    [ "${PRINCIPAL:-self}" != user ] || chown "$TEST_USER:" "$1"
}

# Makes and mounts a workspace below DIR (DIR/ws on DIR/mnt): mount_workspace DIR FROM [OPTION...]; FROM may be empty.
mount_workspace() {
    local dir=$1 from=$2
    shift 2
    principal_dir "$dir"
    principal_dir "$dir/mnt"
    as_principal "$LEASEHOLD" init "$dir/ws" ${from:+--from "$from"} >/dev/null || return 1
    track_mount "$dir/mnt"
    as_principal "$LEASEHOLD" mount "$dir/ws" "$dir/mnt" "$@" || return 1
    is_mounted "$dir/mnt"
}

# Adds up suites that end with the line `N passed, N failed`: run_counted LABEL COMMAND...
# Sets nothing but the totals PASSED and FAILED; a suite without that line counts as one failure.
PASSED=0
FAILED=0
run_counted() {
    local label=$1 line log status=0
    shift
    log=$(mktemp)
    say "== $label"
    "$@" 2>&1 | tee "$log" || status=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 || true)
    rm -f "$log"
    add_counts "$label" "$status" "$line"
}

add_counts() {
    local label=$1 status=$2 line=$3 passed=0 failed=0
    [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]] && passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]}
    if [ "$failed" = 0 ] && { [ -z "$line" ] || [ "$status" != 0 ]; }; then
        say "FAILED $label: ended with status $status${line:+ after \"$line\"}"
        failed=1
    fi
    PASSED=$((PASSED + passed))
    FAILED=$((FAILED + failed))
}

# Prints the totals as the last line and fails if anything did.
print_totals() {
    say "$PASSED passed, $FAILED failed"
    [ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
}
