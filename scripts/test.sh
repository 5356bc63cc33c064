#!/usr/bin/env bash
# Runs every test: test.sh [rust|mounted]
#
# Prepares the machine (packages, /dev/fuse, and, as root, an ordinary user to mount as), then runs the Rust tests, the
# save patterns of real applications (tests/replay) and drivers of real applications (tests/drive) on a mount, as root
# and as the ordinary user; `rust` or `mounted` runs only the one half. The last line is `N passed, N failed`.
#
#   CI=true            LEASEHOLD_APPS is on
#   PROPTEST_RNG_SEED  which random cases the property tests try: the same at each run unless this says another number
#   LEASEHOLD_APPS=1   installs the applications of tests/drive (LibreOffice: some 500 MB); without it absent ones are left out
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DRIVERS=(vim git coretools libreoffice)
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1796000000}

prepare_machine() {
    need_packages fuse3:fusermount3 attr:getfattr gcc:cc python3:python3 nginx-light:/usr/sbin/nginx openssl:openssl
    [ -z "${CI:-}${LEASEHOLD_APPS:-}" ] || install_applications
    open_fuse_device
    is_root || return 0
    need_test_user
    allow_other_for_users
}

install_applications() {
    need_packages vim:vim git:git rsync:rsync zip:zip unzip:unzip patch:patch perl:perl binutils:strip \
        libreoffice-writer:soffice libreoffice-calc:/usr/lib/libreoffice/program/libsclo.so \
        python3-uno:/usr/lib/python3/dist-packages/uno.py
}

# Runs `cargo test` with the arguments and sums its result lines up.
cargo_tests() {
    local status=0 log=$WORK/cargo.log
    (cd "$REPO" && cargo test --locked --no-fail-fast "$@") >"$log" 2>&1 || status=$?
    without_noise <"$log"
    sum_test_results <"$log"
    return "$status"
}

# Leaves out what passed and what was compiled.
without_noise() {
    grep -vE '^(test .* \.\.\. (ok|ignored.*)|running [0-9]+ tests?|  +(Compiling|Finished|Running|Doc-tests) .*|)$' || true
}

sum_test_results() {
    awk '/^test result:/ { passed += $4; failed += $6 } END { printf "%d passed, %d failed\n", passed, failed }'
}

# Runs the integration tests again as the ordinary user: copies of the test programs, with LEASEHOLD_BIN telling them
# which binary to mount with, so that the sources needn't be readable to that user.
mount_tests_as_user() {
    local program status=0 log=$WORK/user-tests.log
    : >"$log"
    while read -r program; do
        install -D -m 755 "$program" "$WORK/user-tests/$(basename "$program")"
        as_test_user env LEASEHOLD_BIN="$LEASEHOLD" "$WORK/user-tests/$(basename "$program")" mount >>"$log" 2>&1 || status=$?
    done < <(integration_test_programs)
    without_noise <"$log"
    sum_test_results <"$log"
    return "$status"
}

integration_test_programs() {
    (cd "$REPO" && cargo test --locked --no-run --quiet --test '*' --message-format=json) |
        grep '"kind":\["test"\]' | grep -o '"executable":"[^"]*"' | cut -d'"' -f4
}

rust_tests() {
    run_counted "unit tests" cargo_tests --lib --bins --examples
    run_counted "documentation tests" cargo_tests --doc
    run_counted "integration tests" cargo_tests --test '*'
    ! is_root || run_counted "mount tests as $TEST_USER" mount_tests_as_user
}

# Replays each save pattern on a document that was imported, checks in, and wants exactly one new version of it (none
# where nothing was changed).
replays_make_one_version() {
    local docs=$1 passed=0 failed=0 script verdict
    for script in "$WORK"/replay/[a-z]*.py; do
        [ "$(basename "$script")" != rplib.py ] || continue
        verdict=$(replay_makes_one_version "$script" "$docs/doc-$(basename "$script" .py).txt")
        case $verdict in
            ok) passed=$((passed + 1)) ;;
            skipped) ;;
            *)
                failed=$((failed + 1))
                say "FAILED $(basename "$script"): $verdict"
                ;;
        esac
    done
    say "$passed passed, $failed failed"
}

# Prints ok, skipped (the mount refuses what this program begins with) or what is wrong.
replay_makes_one_version() {
    local script=$1 doc=$2 before want=1 got status=0
    before=$(describe_document "$doc")
    as_principal env PYTHONDONTWRITEBYTECODE=1 timeout 60 python3 "$script" "$doc" >/dev/null 2>&1 || status=$?
    case $status in
        0) ;;
        77) say skipped && return ;;
        *) say "the replay ended with status $status" && return ;;
    esac
    [ "$(describe_document "$doc")" = "$before" ] || want=2
    as_principal "$LEASEHOLD" checkin "$doc" -m "replay" >/dev/null 2>&1 || [ "$want" = 1 ] || say "the check-in failed;"
    got=$(as_principal getfattr --absolute-names --only-values -n user.artifact.version "$doc" 2>/dev/null || echo none)
    if [ "$got" = "$want" ]; then
        say ok
    else
        say "version $got after the check-in, not $want"
    fi
}

# What a version records of a document.
# shellcheck disable=SC2016  # it is the inner shell that expands $1
describe_document() { as_principal sh -c 'stat -c "%a %y" "$1"; sha256sum <"$1"' describe "$1"; }

# Makes the documents that the replays edit, with the mode that a replay's own document has.
make_replay_documents() {
    local script doc
    principal_dir "$1"
    principal_dir "$1/docs"
    for script in "$WORK"/replay/[a-z]*.py; do
        doc=$1/docs/doc-$(basename "$script" .py).txt
        seq -f 'old line %g' 700 | as_principal tee "$doc" >/dev/null
        as_principal chmod 640 "$doc"
    done
}

# Runs replays and drivers on a mount of PRINCIPAL: suites_on_mount WHO
suites_on_mount() {
    local who=$1 dir=$WORK/$1
    principal_dir "$dir"
    make_replay_documents "$dir/documents"
    if ! mount_workspace "$dir" "$dir/documents" --as tester --checkout "$who"; then
        add_counts "mount as $who" 1 ""
        return 0
    fi
    run_counted "replays as $who" as_principal bash "$WORK/replay/run_all.sh" "$dir/mnt/replay"
    run_counted "replays make one version, as $who" replays_make_one_version "$dir/mnt/docs"
    run_counted "applications as $who" as_principal bash "$WORK/drive/run_all.sh" "$dir/mnt/drive" "${DRIVERS[@]}"
    unmount_dir "$dir/mnt"
}

mounted_suites() {
    cp -r "$REPO/tests/replay" "$REPO/tests/drive" "$WORK/"
    PRINCIPAL=self suites_on_mount "$(is_root && echo root || echo user)"
    ! is_root || PRINCIPAL=user suites_on_mount user
}

main() {
    case ${1:-} in
        "" | rust | mounted) ;;
        *) die "usage: test.sh [rust|mounted]" ;;
    esac
    clean_up_at_exit
    prepare_machine
    make_work_dir
    need_leasehold debug
    [ "${1:-}" = mounted ] || rust_tests
    [ "${1:-}" = rust ] || mounted_suites
    print_totals
}

main "$@"
