#!/usr/bin/env bash
# Shows Leasehold at work, from nothing: quickstart.sh [DIR]
#
# Installs what is missing, builds, makes a workspace from DIR (by default from copies of documents found below
# /usr/share) and plays two people who want to edit one file. Each command is printed before its output. The workspace
# stays for you to go on with; nothing stays mounted, even when you interrupt. Works as root and as an ordinary user.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MAX_FILES=200
MAX_BYTES=$((50 * 1000 * 1000))
MAX_FILES_OF_A_KIND=40

# Prints a command and runs it.
show() {
    printf '\n$ %s\n' "$1"
    bash -c "$1"
}

# Prints a command that is meant to fail, and runs it.
show_refused() {
    printf '\n$ %s\n' "$1"
    ! bash -c "$1" || die "the second holder was not refused: this is a bug"
}

# Lists documents below /usr/share, one a line relative to it: some of each kind, within the limits. find fails where it
# meets a directory that it may not read; the others count.
list_documents() {
    local name kinds=(-false)
    for name in odt ods odp docx xlsx pptx pdf svg png jpg tif xcf blend kicad_pcb dia html rtf md txt; do
        kinds+=(-o -name "*.$name")
    done
    { find /usr/share/ -type f -readable ! -name $'*\n*' \( "${kinds[@]}" -o -path '*/doc/*/README*' \) -size +0 -size -5M \
        -printf '%s %P\n' 2>/dev/null || true; } | awk -v files=$MAX_FILES -v bytes=$MAX_BYTES -v each=$MAX_FILES_OF_A_KIND '{
            kind = $0
            sub(/.*\./, "", kind)
            if (count >= files || sum + $1 > bytes || seen[kind]++ >= each) next
            count++
            sum += $1
            sub(/^[0-9]+ /, "")
            print
        }'
}

copy_documents() {
    mkdir -p documents
    list_documents >documents.list
    [ -s documents.list ] || die "no documents were found below /usr/share; name a directory: quickstart.sh DIR"
    (cd /usr/share && xargs -d '\n' cp --parents -t "$HERE/documents") <documents.list
    rm documents.list
}

# Picks the file that will be edited: one that is text, so that the edit can be seen; else any.
pick_file() {
    local file
    file=$(cd "$1" && find . -type f ! -name '.*' \( -iname '*.txt' -o -iname '*.md' -o -iname '*.svg' -o -iname '*.html' -o -name 'README*' \) -print -quit)
    [ -n "$file" ] || file=$(cd "$1" && find . -type f ! -name '.*' -print -quit)
    [ -n "$file" ] || die "$1 holds no files"
    printf '%q' "${file#./}"
}

prepare() {
    say "Installing what is missing, and building (the first time takes some minutes) ..."
    need_packages fuse3:fusermount3 attr:getfattr gcc:cc
    open_fuse_device
    need_leasehold release
    PATH=$(dirname "$LEASEHOLD"):$PATH
}

# Makes the directory of the tour and goes there. Private to the user, since it holds copies of the documents.
enter_tour_directory() {
    HERE=$(mktemp -d "${TMPDIR:-/var/tmp}/leasehold-quickstart.XXXXXX")
    track_dir "$HERE"
    track_mount "$HERE/alice"
    track_mount "$HERE/bob"
    cd "$HERE"
    mkdir alice bob
}

two_people_one_file() {
    local file=$1
    show "leasehold mount workspace alice --as alice --checkout studio"
    show "leasehold mount workspace bob --as bob --checkout laptop"
    show "ls -l alice"
    say "
# Alice edits: the first write takes the lease. No plug-in, no lock command."
    show "echo 'A line by Alice.' >> alice/$file"
    show "getfattr -d alice/$file"
    say "
# Bob has the same file in his own mount. He can read it, but not write it, and learns who has it."
    show_refused "echo x >> bob/$file"
    show "getfattr -n user.lease.holder bob/$file"
    show "leasehold status bob/$file"
    say "
# Alice checks in: her version is everybody's now, and the lease is free."
    show "leasehold checkin alice/$file -m 'A line by Alice'"
    sleep 0.5
    show "tail -n 1 bob/$file"
    show "leasehold log alice/$file"
    show "leasehold umount alice"
    show "leasehold umount bob"
}

say_what_next() {
    cat <<END

Done; nothing is mounted any more. The workspace stays in $HERE. To go on:

    export PATH=$(dirname "$LEASEHOLD"):\$PATH
    cd $HERE
    leasehold mount workspace alice      # then open, edit and save below alice/ with any application
    leasehold status alice               # what you changed, and who holds what
    leasehold checkin alice -m 'why'     # show it to the others
    leasehold umount alice

Or begin with your own files: leasehold init ~/workspace --from ~/project
README.md tells the rest. To remove this tour: rm -r $HERE
END
}

usage() {
    cat <<END
usage: quickstart.sh [DIR]

Shows Leasehold at work: installs what is missing, builds, makes a workspace from DIR (by default from copies of
documents found below /usr/share), and plays two people who want to edit one file. The workspace stays, in a new
directory below \${TMPDIR:-/var/tmp}; nothing stays mounted.
END
}

main() {
    case ${1:-} in
        -h | --help)
            usage
            return
            ;;
        -*)
            usage >&2
            exit 2
            ;;
    esac
    [ $# -le 1 ] || {
        usage >&2
        exit 2
    }
    local from=${1:-}
    [ -z "$from" ] || { [ -d "$from" ] && from=$(cd "$from" && pwd); } || die "$from is not a directory"
    clean_up_at_exit
    prepare
    enter_tour_directory
    if [ -z "$from" ]; then
        copy_documents
        from=documents
    fi
    show "leasehold init workspace --from $(printf '%q' "$from")"
    two_people_one_file "$(pick_file "$from")"
    TRACKED_DIRS=()
    say_what_next
}

main "$@"
