# common.sh: sourced by every driver in this folder.   usage of a driver: bash NAME.sh DIR
# DIR is made if absent; the driver only touches files it creates there.
# Optional environment:
#   RUN_HOOK=PROG   every application start becomes  PROG LABEL DIR app args...  (for strace)
#   KEEP=1          leave the files behind
# Each driver ends with the line 'N passed, N failed' (', N skipped' if any) and exits nonzero if one failed.
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DIR=${1:?usage: $0 DIR}; mkdir -p "$DIR" && DIR=$(cd "$DIR" && pwd -P) && cd "$DIR" || exit 2
SCRATCH=$(mktemp -d /var/tmp/appdrv.XXXXXX)          # homes, profiles: never on the filesystem under test
export HOME=$SCRATCH/home XDG_RUNTIME_DIR=$SCRATCH/run; mkdir -p "$HOME" "$XDG_RUNTIME_DIR"; chmod 700 "$XDG_RUNTIME_DIR"
unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME
P=0 F=0 S=0 FILES=()
trap 'rm -rf "$SCRATCH"' EXIT
run()  { local l=$1; shift; if [ -n "${RUN_HOOK:-}" ]; then "$RUN_HOOK" "$l" "$DIR" "$@"; else "$@"; fi; }
pass() { P=$((P+1)); echo "ok   $*"; }
fail() { F=$((F+1)); echo "FAIL $*"; }
skip() { S=$((S+1)); echo "skip $*"; }
have() { command -v "$1" >/dev/null || { skip "$1 is not installed"; finish; }; }
check(){ local l=$1; shift; if "$@" >/dev/null 2>&1; then pass "$l"; else fail "$l: $*"; fi; }
is()   { if [ "$(cat "$2" 2>&1)" = "$3" ]; then pass "$1"; else fail "$1: $2 holds '$(head -c 200 "$2" 2>&1)' not '$3'"; fi; }
clean(){ rm -rf -- "$@"; }
finish(){ echo "$P passed, $F failed$([ $S -gt 0 ] && echo ", $S skipped")"; [ $F -eq 0 ]; exit $?; }
