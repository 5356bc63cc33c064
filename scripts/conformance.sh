#!/usr/bin/env bash
# Runs two public filesystem suites on a mount, and cuts the power, as root: conformance.sh [--short]
#
# pjdfstest (what POSIX says of each call; tests/exclusions/pjdfstest.toml lists what the design refuses) and fsx (random
# reads, writes, mappings, truncates and holes on a draft, every read verified: 4 seeds of 100,000 operations in each of
# 6 kinds; with --short 2 seeds of 10,000). Then powercut.sh: 60 cuts, with --short 9. The last line is `N passed, N failed`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SEEDS=(1 2 3 4)
OPERATIONS=100000
CUTS=60

main() {
    case ${1:-} in
        --short) SEEDS=(1 2) OPERATIONS=10000 CUTS=9 ;;
        "") ;;
        *) die "usage: conformance.sh [--short]" ;;
    esac
    is_root || die "pjdfstest changes owners and users: run this as root"
    clean_up_at_exit
    need_packages fuse3:fusermount3 attr:getfattr gcc:cc
    open_fuse_device
    make_work_dir
    need_leasehold release
    mount_workspace "$WORK" "" --allow-other --as tester --checkout conformance || die "the mount failed"
    mkdir -m 755 "$WORK/mnt/drafts"
    run_counted pjdfstest "$REPO/tests/suites/pjdfstest.sh" "$WORK/mnt/drafts" "$REPO/tests/exclusions/pjdfstest.toml"
    run_counted fsx env AFTER_EACH="'$LEASEHOLD' gc --grace 1ms -w '$WORK/ws'" "$REPO/tests/suites/fsx.sh" "$WORK/mnt/drafts" "$OPERATIONS" "${SEEDS[@]}"
    run_counted "power cuts" env LEASEHOLD_BIN="$LEASEHOLD" "$REPO/scripts/powercut.sh" "$CUTS"
    print_totals
}

main "$@"
