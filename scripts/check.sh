#!/usr/bin/env bash
# Runs every check that a change must pass: check.sh
#
# Formatting, lints, documentation, dependency policy, shell scripts, then all tests (test.sh, whose last line
# `N passed, N failed` is the last line here too). Stops at the first check that fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CARGO_DENY_VERSION=0.20.2

step() {
    say "== $*"
    "$@"
}

check_docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --quiet; }

# Licenses, bans and sources need the crates of all platforms, which a build may not have fetched. Advisories need their
# database: they are checked where it can be reached, and it is said where not.
check_dependencies() {
    have cargo-deny || cargo install --quiet --locked cargo-deny --version "$CARGO_DENY_VERSION"
    cargo fetch --locked --quiet
    cargo deny --locked --offline check bans licenses sources
    if ! cargo deny fetch db >/dev/null 2>&1; then
        say "advisories: not checked, their database can't be reached from here"
        return 0
    fi
    cargo deny --locked check advisories
}

check_shell_scripts() {
    if ! have shellcheck; then
        say "shell scripts: not checked, shellcheck is not installed"
        return 0
    fi
    shellcheck -x scripts/*.sh scripts/bench/*.sh tests/suites/*.sh .ci/run
}

main() {
    cd "$REPO"
    need_packages gcc:cc
    step cargo fmt --check
    step cargo clippy --locked --all-targets --quiet -- -D warnings
    step check_docs
    step check_dependencies
    step check_shell_scripts
    step scripts/test.sh
}

main "$@"
