# shellcheck shell=bash
# The samples of a benchmark run and the table printed from them. Sourced by bench.sh.
#
# A sample is one number of seconds, a line in $WORK/samples/ROW.FS.

# Keeps one sample: keep_sample ROW FS SECONDS. A load that failed printed no number: that ends the run, lest a table lie.
keep_sample() {
    [[ $3 =~ ^[0-9.]+$ ]] || die "the load $1 failed on $2"
    mkdir -p "$WORK/samples"
    echo "$3" >>"$WORK/samples/$1.$2"
}

# Prints the median of the samples, or nothing where there is none.
median() {
    [ -s "$WORK/samples/$1.$2" ] || return 0
    sort -g "$WORK/samples/$1.$2" | awk '{ v[NR] = $1 }
        END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# Prints AMOUNT per second: per_second AMOUNT SECONDS
per_second() { awk -v amount="$1" -v seconds="$2" 'BEGIN { if (seconds > 0) printf "%.0f", amount / seconds; else printf "-" }'; }

# Prints how much of A's speed B reaches, given the seconds of both.
share() { awk -v native="$1" -v other="$2" 'BEGIN { if (native != "" && other > 0) printf "%.2f", native / other; else printf "-" }'; }

# Says whether a share reaches its target; nothing is judged where either is missing.
verdict() {
    awk -v got="$1" -v want="$2" 'BEGIN { if (got == "-" || want == "-") print ""; else print (got + 0 >= want + 0) ? "ok" : "below" }'
}

print_head() {
    printf '%-34s %10s %10s %10s  %7s %9s %7s\n' load native bindfs leasehold bindfs leasehold target
}

# Prints one row: print_row ROW "NAME (UNIT)" AMOUNT TARGET
print_row() {
    local native bindfs ours ours_share
    native=$(median "$1" native) bindfs=$(median "$1" bindfs) ours=$(median "$1" leasehold)
    ours_share=$(share "$native" "${ours:-0}")
    printf '%-34s %10s %10s %10s  %7s %9s %7s  %s\n' "$2" "$(per_second "$3" "${native:-0}")" \
        "$(per_second "$3" "${bindfs:-0}")" "$(per_second "$3" "${ours:-0}")" \
        "$(share "$native" "${bindfs:-0}")" "$ours_share" "$4" "$(verdict "$ours_share" "$4")"
}
