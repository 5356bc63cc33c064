# shellcheck shell=bash
# The measurements that have no bindfs beside them. Sourced by bench.sh. Each function takes the directory that
# setup_filesystems made (native/, ws, mnt) and prints one line or two.

# Prints the seconds that a command takes; what it says is shown only if it fails.
timed() {
    local start=$EPOCHREALTIME
    if ! "$@" >"$WORK/timed.log" 2>&1; then
        tail -n 5 "$WORK/timed.log" >&2
        return 1
    fi
    awk -v start="$start" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", end - start }'
}

# Prints a claim with its figures: print_claim TEXT VALUE at-most|at-least TARGET
print_claim() {
    local result
    result=$(awk -v got="$2" -v how="$3" -v want="$4" 'BEGIN {
        print ((how == "at-most") ? got + 0 <= want + 0 : got + 0 >= want + 0) ? "ok" : "below" }')
    say "$1: $2 (target ${3/-/ } $4)  $result"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0) ? a / b : 0 }'; }

native_write_and_hash() {
    load fillsync "$1" "$HUGE_MIB" &&
        as_principal sha256sum "$1"
}
write_and_settle() {
    load fill "$1" "$HUGE_MIB" &&
        as_principal "$LEASEHOLD" settle "$1"
}

# A large save, until it is durable and addressed by its digest.
bench_settle() {
    local dir=$1 run
    for ((run = 1; run <= RUNS; run++)); do
        sync
        keep_sample settle native "$(timed native_write_and_hash "$dir/native/huge.new")"
        as_principal rm "$dir/native/huge.new"
        sync
        keep_sample settle leasehold "$(timed write_and_settle "$dir/mnt/huge.new")"
        as_principal rm "$dir/mnt/huge.new"
    done
    print_claim "$HUGE_MIB MiB written, closed and settled in $(median settle leasehold) s, native write, fsync and sha256sum in $(median settle native) s; times native" \
        "$(ratio "$(median settle leasehold)" "$(median settle native)")" at-most 1.3
}

# The import of many small files, until it is durable.
bench_import() {
    local dir=$1 run source=$1/native/small
    as_principal mkdir "$source"
    load tree "$source" $((IMPORTS / 100)) 100 4096 "$IMPORTS" >/dev/null
    for ((run = 1; run <= RUNS; run++)); do
        sync
        keep_sample import native "$(timed copy_and_sync "$source" "$dir/native/small.copy")"
        as_principal rm -r "$dir/native/small.copy"
        sync
        keep_sample import leasehold "$(timed as_principal "$LEASEHOLD" init "$dir/import.ws" --from "$source")"
        as_principal rm -r "$dir/import.ws"
    done
    print_claim "import of $IMPORTS files of 4 KiB, durable (native cp -r and sync: $(per_second "$IMPORTS" "$(median import native)")/s); files/s" \
        "$(per_second "$IMPORTS" "$(median import leasehold)")" at-least 4000
}

copy_and_sync() {
    as_principal cp -r "$1" "$2" &&
        sync -f "$2"
}

# The first write into a huge version, which copies it; beside the copy that cp makes.
bench_edit() {
    local dir=$1 run before after
    load fill "$dir/native/huge.bin" "$HUGE_MIB" >/dev/null
    as_principal "$LEASEHOLD" import -w "$dir/ws" "$dir/native/huge.bin" -m "one huge file" >/dev/null
    before=$(disk_mib "$dir/ws")
    for ((run = 1; run <= RUNS; run++)); do
        sync
        keep_sample edit native "$(timed as_principal cp "$dir/native/huge.bin" "$dir/native/huge.copy")"
        as_principal rm "$dir/native/huge.copy"
        sync
        keep_sample edit leasehold "$(load edit "$dir/mnt/huge.bin" 4096)"
        as_principal "$LEASEHOLD" settle "$dir/mnt/huge.bin" >/dev/null
        [ "$run" != 1 ] || after=$(disk_mib "$dir/ws")
        as_principal "$LEASEHOLD" revert "$dir/mnt/huge.bin" >/dev/null
    done
    print_claim "first write of 4 KiB into a version of $HUGE_MIB MiB in $(median edit leasehold) s, cp in $(median edit native) s, disk use +$((after - before)) MiB; times cp" \
        "$(ratio "$(median edit leasehold)" "$(median edit native)")" at-most 1
}

disk_mib() { du -s --block-size=1M "$1" | cut -f1; }

# A mount of very many artifacts: how soon it is ready, and how much memory it takes.
bench_many() {
    local dir=$1/many run pid
    principal_dir "$dir"
    principal_dir "$dir/mnt"
    as_principal mkdir "$dir/source"
    load tree "$dir/source" $((ARTIFACTS / 100)) 100 64 1000 >/dev/null
    as_principal "$LEASEHOLD" init "$dir/ws" --from "$dir/source" >/dev/null
    track_mount "$dir/mnt"
    for ((run = 1; run <= RUNS; run++)); do
        keep_sample many leasehold "$(timed mount_and_list "$dir")"
        pid=$(pgrep -n -f -- "$dir/mnt")
        keep_sample many-memory leasehold "$(memory_mib "$pid" VmRSS)"
        [ "$run" = "$RUNS" ] || as_principal "$LEASEHOLD" umount "$dir/mnt" >/dev/null
    done
    print_claim "a mount of $ARTIFACTS artifacts is ready and listed; seconds" "$(median many leasehold)" at-most 1
    print_claim "its resident memory; MiB" "$(median many-memory leasehold)" at-most 100
    load walk "$dir/mnt" >/dev/null
    say "  after a walk over all of it: $(memory_mib "$pid" VmRSS) MiB"
    unmount_dir "$dir/mnt"
}

mount_and_list() {
    as_principal "$LEASEHOLD" mount "$1/ws" "$1/mnt" --as bench --checkout many &&
        as_principal ls "$1/mnt"
}

memory_mib() { awk -v key="$2:" '$1 == key { printf "%.0f", $2 / 1024 }' "/proc/$1/status"; }

# The lease table beside raw SQLite that writes the same rows with the same pragmas: one process, sets, lists, contention.
bench_leases() {
    local dir=$1 run ours raw ours_longest raw_longest
    (cd "$REPO" && cargo build --release --locked --quiet --example lease_bench)
    install -m 755 "$(cargo_target_dir)/release/examples/lease_bench" "$WORK/bin/lease_bench"
    for ((run = 1; run <= RUNS; run++)); do
        read -r ours raw < <(lease_bench "$dir/leases.$run" alone "$LEASES")
        keep_sample alone leasehold "$ours"
        keep_sample alone native "$raw"
        keep_sample set leasehold "$(lease_bench "$dir/leases.$run" set 1000)"
        keep_sample list leasehold "$(lease_bench "$dir/leases.$run" list 100000)"
        read -r ours raw ours_longest raw_longest < <(lease_bench "$dir/leases.$run" contend "$LEASE_SECONDS")
        keep_sample contend leasehold "$ours"
        keep_sample contend native "$raw"
        keep_sample longest leasehold "$ours_longest"
        keep_sample longest native "$raw_longest"
    done
    print_claim "$(per_second "$LEASES" "$(median alone leasehold)") lease acquires/s of one process, $(per_second "$LEASES" "$(median alone native)") of raw SQLite; share" \
        "$(ratio "$(median alone native)" "$(median alone leasehold)")" at-least 0.8
    print_claim "one set of 1000 resources, seconds" "$(median set leasehold)" at-most 0.02
    print_claim "listing 100000 leases, seconds" "$(median list leasehold)" at-most 0.2
    print_claim "8 processes on 64 keys: $(median contend leasehold) acquires/s, $(median contend native) of raw SQLite; share" \
        "$(ratio "$(median contend leasehold)" "$(median contend native)")" at-least 0.8
    print_claim "the longest wait of one of them, seconds; of raw SQLite $(median longest native)" \
        "$(median longest leasehold)" at-most 1
}

# Each of the measurements starts with a workspace of its own.
lease_bench() {
    principal_dir "$1.$2"
    as_principal "$WORK/bin/lease_bench" "$2" "$1.$2" "$3"
    rm -r "$1.$2"
}

# The store on disk beside the system's calls: puts one at a time and in a batch, a large put and get, look-ups.
bench_store() {
    local dir=$1 run figures
    (cd "$REPO" && cargo build --release --locked --quiet --example store_puts)
    install -m 755 "$(cargo_target_dir)/release/examples/store_puts" "$WORK/bin/store_puts"
    for ((run = 1; run <= RUNS; run++)); do
        principal_dir "$dir/store.$run"
        read -r -a figures < <(as_principal "$WORK/bin/store_puts" "$dir/store.$run" "$BLOBS" "$BLOB_MIB")
        keep_sample put native "${figures[0]}"
        keep_sample put leasehold "${figures[1]}"
        keep_sample batch leasehold "${figures[2]}"
        keep_sample large native "${figures[3]}"
        keep_sample large leasehold "${figures[4]}"
        keep_sample missing leasehold "${figures[5]}"
        keep_sample read leasehold "${figures[6]}"
        keep_sample read native "$(timed as_principal sha256sum "$dir/store.$run/large")"
        rm -r "$dir/store.$run"
    done
    print_claim "$BLOBS puts of 4 KiB, one at a time, in $(median put leasehold) s; native write, fsync, rename and fsync of the directory in $(median put native) s; times native" \
        "$(ratio "$(median put leasehold)" "$(median put native)")" at-most 1.5
    print_claim "the same in one batch in $(median batch leasehold) s; times faster than one at a time" \
        "$(ratio "$(median put leasehold)" "$(median batch leasehold)")" at-least 10
    print_claim "put of $BLOB_MIB MiB in $(median large leasehold) s, native write and fsync in $(median large native) s; times native" \
        "$(ratio "$(median large leasehold)" "$(median large native)")" at-most 1.2
    print_claim "verified get of $BLOB_MIB MiB, warm, in $(median read leasehold) s, sha256sum in $(median read native) s; share of its rate" \
        "$(ratio "$(median read native)" "$(median read leasehold)")" at-least 0.8
    print_claim "which of $((BLOBS * 100)) digests are missing; seconds" "$(median missing leasehold)" at-most 1
}
