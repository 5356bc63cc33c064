# shellcheck shell=bash
# The loads that are measured on native ext4, bindfs and leasehold alike. Sourced by bench.sh.
#
# READS[fs] holds what is only read (versions, on leasehold), WRITES[fs] is a directory to write in (drafts).

declare -A READS WRITES

# Runs fsload as the user whose mounts are measured and prints its seconds.
load() { as_principal "$FSLOAD" "$@"; }

drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# Runs a load of ROW once on each filesystem in turn, so that a slow minute of the machine hits all alike.
# interleave ROW FUNCTION: FUNCTION FS prints seconds.
interleave() {
    local row=$1 measure=$2 run fs
    for ((run = 1; run <= RUNS; run++)); do
        for fs in "${FILESYSTEMS[@]}"; do
            keep_sample "$row" "$fs" "$("$measure" "$fs")"
        done
    done
}

seqread_warm() {
    load seqread "${READS[$1]}/big.bin" >/dev/null
    load seqread "${READS[$1]}/big.bin"
}
seqread_cold() {
    drop_caches
    load seqread "${READS[$1]}/big.bin"
}
randread_warm() { load randread "${READS[$1]}/big.bin" "$RANDOM_READS"; }
save_plain() { load save "${WRITES[$1]}/save.bin" "$SAVES"; }
save_synced() { load savesync "${WRITES[$1]}/save.bin" "$SYNCED_SAVES"; }
walk_warm() {
    load walk "${READS[$1]}/tree" >/dev/null
    load walk "${READS[$1]}/tree"
}
walk_cold() {
    drop_caches
    load walk "${READS[$1]}/tree"
}

# Creates and unlinks the same files, run by run; they are on disk before they go, as files usually are.
create_and_unlink() {
    local run fs dir
    for ((run = 1; run <= RUNS; run++)); do
        for fs in "${FILESYSTEMS[@]}"; do
            dir=${WRITES[$fs]}/new.$run
            as_principal mkdir "$dir"
            keep_sample create "$fs" "$(load create "$dir" "$CREATES")"
            sync
            keep_sample unlink "$fs" "$(load unlink "$dir" "$CREATES")"
            as_principal rmdir "$dir"
        done
    done
}

measure_loads() {
    interleave seqread-warm seqread_warm
    interleave randread-warm randread_warm
    interleave savesync save_synced
    interleave save save_plain
    create_and_unlink
    interleave walk-warm walk_warm
    is_root || return 0
    interleave seqread-cold seqread_cold
    interleave walk-cold walk_cold
}

# Prints the table, with targets for root, whose mount may use passthrough: print_loads root|user
print_loads() {
    local goal=(0.80 0.70 0.75 0.25 0.35 0.20 0.50 0.40 0.50)
    [ "$1" = root ] || goal=(- - - - - - - - -)
    print_row seqread-warm "sequential read, warm (MiB/s)" "$BIG_MIB" "${goal[0]}"
    print_row seqread-cold "sequential read, cold (MiB/s)" "$BIG_MIB" "${goal[1]}"
    print_row randread-warm "random 4 KiB reads, warm (/s)" "$RANDOM_READS" "${goal[2]}"
    print_row savesync "64 KiB save, fsync (/s)" "$SYNCED_SAVES" "${goal[3]}"
    print_row save "64 KiB save, no fsync (/s)" "$SAVES" "${goal[4]}"
    print_row create "create of 4 KiB files (/s)" "$CREATES" "${goal[5]}"
    print_row walk-warm "walk with stat, warm (entries/s)" "$TREE_ENTRIES" "${goal[6]}"
    print_row walk-cold "walk with stat, cold (entries/s)" "$TREE_ENTRIES" "${goal[7]}"
    print_row unlink "unlink (/s)" "$CREATES" "${goal[8]}"
}
