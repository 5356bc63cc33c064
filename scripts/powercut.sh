#!/usr/bin/env bash
# Cuts the power under a busy mount and looks what is left, as root: powercut.sh [ROUNDS | DURATION]
#
# ROUNDS cuts (60 if nothing is said), or as many as begin within DURATION (90s, 10m, 2h), in turn over three kinds of cut
# (tests/suites/powercut.sh says which) on ext4 and, where xfsprogs are, on xfs. What is done until the cut and what must
# hold after it is in tests/suites/powercut_work.py. Then one more cut with a mount whose syncs do nothing: that one must
# lose something, else the check is worth nothing. The last line is `N passed, N failed`; what failed cuts left is kept
# in a directory that is named.
#
#   POWERCUT_FILESYSTEMS  which filesystems (`ext4 xfs`)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KINDS=(nologflush logflush volatile)
SUITE=$REPO/tests/suites/powercut.sh
COMMAND=(python3 -B "$REPO/tests/suites/powercut_work.py")

# Sets ROUNDS or SECONDS_LEFT from the argument.
parse_amount() {
    ROUNDS='' DURATION_S=''
    case $1 in
        *[!0-9smh]* | [smh]* | '' | *[smh]?*) die "usage: powercut.sh [ROUNDS | DURATION]" ;;
        *s) DURATION_S=${1%s} ;;
        *m) DURATION_S=$((${1%m} * 60)) ;;
        *h) DURATION_S=$((${1%h} * 3600)) ;;
        *) ROUNDS=$1 ;;
    esac
}

choose_filesystems() {
    read -ra FILESYSTEMS <<<"${POWERCUT_FILESYSTEMS:-ext4 xfs}"
    local filesystem
    for filesystem in "${FILESYSTEMS[@]}"; do
        have "mkfs.$filesystem" || die "mkfs.$filesystem is missing"
    done
}

another_round() {
    if [ -n "$ROUNDS" ]; then
        [ "$1" -lt "$ROUNDS" ]
    else
        [ "$SECONDS" -lt "$DURATION_S" ]
    fi
}

# Runs the suite so that a signal ends it, which unmounts then: suite LOG ARGUMENT...
suite() {
    local log=$1
    shift
    "$SUITE" "$@" "${COMMAND[@]}" >"$log" 2>&1 &
    track_pid $!
    wait $!
}

# One cut: its numbers are added up, and its line is printed.
cut() {
    local filesystem=$1 kind=$2 line status=0
    suite "$WORK/cut.log" "$filesystem" "$kind" 1 "$WORK/cuts" || status=$?
    sed '$d' "$WORK/cut.log"
    line=$(tail -n 1 "$WORK/cut.log")
    add_counts "$filesystem $kind" "$status" "$line"
}

cut_in_turn() {
    local round=0 kind filesystem
    while another_round "$round"; do
        kind=${KINDS[round % ${#KINDS[@]}]}
        filesystem=${FILESYSTEMS[round / ${#KINDS[@]} % ${#FILESYSTEMS[@]}]}
        cut "$filesystem" "$kind"
        round=$((round + 1))
    done
}

# The negative control. It needs time to save something that isn't on the disk.
cut_with_lies() {
    local log=$WORK/lies.log
    if LIE=1 SHORTEST_MS=2500 suite "$log" ext4 nologflush 1 "$WORK/lies"; then
        say "FAILED control: syncs that do nothing were not noticed" && FAILED=$((FAILED + 1))
    elif grep -q '^LOST' "$log"; then
        say "ok control: syncs that do nothing lose $(grep -c '^LOST' "$log") things" && PASSED=$((PASSED + 1))
    else
        say "FAILED control:" && cat "$log" && FAILED=$((FAILED + 1))
    fi
}

keep_remains() {
    [ "$FAILED" != 0 ] || return 0
    local kept
    kept=$(mktemp -d "${TMPDIR:-/var/tmp}/leasehold-powercut.XXXXXX")
    cp -r "$WORK"/cuts/failed-* "$WORK/lies.log" "$kept/" 2>/dev/null || true
    say "what is left of them is in $kept"
}

main() {
    [ $# -le 1 ] || die "usage: powercut.sh [ROUNDS | DURATION]"
    parse_amount "${1:-60}"
    is_root || die "it makes and mounts filesystems: run this as root"
    clean_up_at_exit
    need_packages e2fsprogs:mkfs.ext4 xfsprogs:mkfs.xfs nbdkit:nbdkit libnbd-bin:nbdfuse fuse3:fusermount3 \
        python3:python3 strace:strace
    choose_filesystems
    open_fuse_device
    make_work_dir
    need_leasehold release
    export LEASEHOLD
    SECONDS=0
    cut_in_turn
    cut_with_lies
    keep_remains
    print_totals
}

main "$@"
