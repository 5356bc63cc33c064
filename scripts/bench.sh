#!/usr/bin/env bash
# Measures a mount beside native ext4 and Debian's bindfs (a plain FUSE passthrough), all in one run, load by load in turn:
#
#   bench.sh [--quick] [--as root|user] [PART...]
#
# Parts: loads (the table), settle, import, edit, leases, many, serve, store; all by default. Figures are medians of five; those of
# leasehold and bindfs are shown as shares of native, with the target beside. Reads are of versions, writes of drafts.
# By default everything is measured twice: as root, whose mounts may use passthrough, and as an ordinary user (whose
# table has no targets). An ordinary user gets only the latter, without what needs root (cold caches).
# --quick measures once, with a tenth of the work: to see that it runs, not for figures.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/bench/table.sh
. "$REPO/scripts/bench/table.sh"
# shellcheck source=scripts/bench/loads.sh
. "$REPO/scripts/bench/loads.sh"
# shellcheck source=scripts/bench/extras.sh
. "$REPO/scripts/bench/extras.sh"
# shellcheck source=scripts/bench/serve.sh
. "$REPO/scripts/bench/serve.sh"

PARTS=()
WHO=(root user)
FILESYSTEMS=(native bindfs leasehold)

set_sizes() {
    RUNS=5 BIG_MIB=512 RANDOM_READS=200000 SAVES=1000 SYNCED_SAVES=200 CREATES=2000 TREE_DIRS=100
    HUGE_MIB=1024 IMPORTS=20000 LEASES=2000 LEASE_SECONDS=10 ARTIFACTS=200000 SERVE_SECONDS=10 BLOBS=1000 BLOB_MIB=256
    if [ "${1:-}" = quick ]; then
        RUNS=1 BIG_MIB=64 RANDOM_READS=20000 SAVES=100 SYNCED_SAVES=20 CREATES=200 TREE_DIRS=10
        HUGE_MIB=100 IMPORTS=2000 LEASES=200 LEASE_SECONDS=2 ARTIFACTS=20000 SERVE_SECONDS=2 BLOBS=100 BLOB_MIB=32
    fi
    TREE_ENTRIES=$((TREE_DIRS * 101))
}

parse_arguments() {
    set_sizes
    while [ $# -gt 0 ]; do
        case $1 in
            --quick) set_sizes quick ;;
            --as)
                WHO=("${2:?--as root or --as user}")
                shift
                ;;
            loads | settle | import | edit | leases | many | serve | store) PARTS+=("$1") ;;
            *) die "usage: bench.sh [--quick] [--as root|user] [loads|settle|import|edit|leases|many|serve|store ...]" ;;
        esac
        shift
    done
    [ ${#PARTS[@]} -gt 0 ] || PARTS=(loads settle import edit leases many serve store)
    is_root || WHO=(user)
}

prepare() {
    need_packages fuse3:fusermount3 attr:getfattr gcc:cc bindfs:bindfs procps:pgrep
    open_fuse_device
    ! is_root || need_test_user
    make_work_dir
    need_leasehold release
    FSLOAD=$WORK/bin/fsload
    cc -O2 -Wall -Wextra -o "$FSLOAD" "$REPO/scripts/bench/fsload.c"
}

# Makes the same documents on native ext4, below a bindfs and as versions of a mount: DIR/native, DIR/bindfs, DIR/mnt.
setup_filesystems() {
    local dir=$1 sub
    principal_dir "$dir"
    for sub in native bindfs.source bindfs; do
        principal_dir "$dir/$sub"
    done
    make_documents "$dir/native"
    make_documents "$dir/bindfs.source"
    track_mount "$dir/bindfs"
    as_principal bindfs --no-allow-other "$dir/bindfs.source" "$dir/bindfs"
    mount_workspace "$dir" "$dir/native/reads" --as bench --checkout bench || die "the mount failed"
    as_principal mkdir "$dir/mnt/writes"
    READS=([native]=$dir/native/reads [bindfs]=$dir/bindfs/reads [leasehold]=$dir/mnt)
    WRITES=([native]=$dir/native/writes [bindfs]=$dir/bindfs/writes [leasehold]=$dir/mnt/writes)
}

make_documents() {
    as_principal mkdir "$1/reads" "$1/reads/tree" "$1/writes"
    load fill "$1/reads/big.bin" "$BIG_MIB" >/dev/null
    load tree "$1/reads/tree" "$TREE_DIRS" 100 4096 $((TREE_DIRS * 100)) >/dev/null
}

bench_loads() {
    measure_loads
    print_head
    print_loads "$2"
}

# Measures all parts for one kind of user: bench_as root|user
bench_as() {
    local who=$1 part dir=$WORK/$1 PRINCIPAL=self
    if is_root && [ "$who" = user ]; then
        PRINCIPAL=user
    fi
    setup_filesystems "$dir"
    say "" "As $who, on $(stat -f -c %T "$WORK"), Linux $(uname -r), $(nproc) cores; medians of $RUNS"
    for part in "${PARTS[@]}"; do
        "bench_$part" "$dir" "$who"
    done
    unmount_dir "$dir/mnt"
    unmount_dir "$dir/bindfs"
    rm -rf --one-file-system "$dir" "$WORK/samples"
}

main() {
    local who
    parse_arguments "$@"
    clean_up_at_exit
    prepare
    for who in "${WHO[@]}"; do
        bench_as "$who"
    done
}

main "$@"
