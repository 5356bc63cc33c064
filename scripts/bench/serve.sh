# shellcheck shell=bash
# Blobs by HTTP: `leasehold serve` beside nginx on the same files. Sourced by bench.sh.

BLOBS=512

# Makes blobs of 1 MiB each at their addresses below DIR, and the list of their paths in DIR.urls.
make_blobs() {
    local dir=$1 i digest
    principal_dir "$dir"
    : >"$dir.urls"
    for ((i = 0; i < BLOBS; i++)); do
        head -c 1048576 /dev/urandom >"$WORK/blob"
        digest=$(sha256sum <"$WORK/blob" | cut -d' ' -f1)
        as_principal mkdir -p "$dir/${digest:0:2}"
        as_principal install -m 600 "$WORK/blob" "$dir/${digest:0:2}/$digest"
        say "/cas/$digest" >>"$dir.urls"
    done
}

# Prints the number of the process that a background call of as_principal started: $! is a shell that waits for it.
child_of() {
    local i
    for ((i = 0; i < 200; i++)); do
        pgrep -P "$1" && return 0
        sleep 0.05
    done
    die "a server doesn't start"
}

# Starts nginx, with a worker for each processor, on the blobs of DIR; sets NGINX to where it listens.
start_nginx() {
    local objects=$1 dir=$1.nginx port=$((20000 + RANDOM % 10000)) user=
    [ "${PRINCIPAL:-self}" = user ] || ! is_root || user="user root root;"
    principal_dir "$dir"
    cat >"$dir/nginx.conf" <<END
daemon off; worker_processes auto; $user pid $dir/pid; error_log $dir/error.log; events {}
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
    client_body_temp_path $dir/t; proxy_temp_path $dir/t; fastcgi_temp_path $dir/t; uwsgi_temp_path $dir/t; scgi_temp_path $dir/t;
    server { listen 127.0.0.1:$port; location ~ "^/cas/((..).{62})\$" { alias $objects/\$2/\$1; } }
}
END
    as_principal /usr/sbin/nginx -e "$dir/error.log" -p "$dir" -c "$dir/nginx.conf" >/dev/null 2>&1 &
    track_pid "$(child_of $!)"
    NGINX=http://127.0.0.1:$port
    wait_for_answer "$NGINX/cas/none"
}

# Starts `leasehold serve` on the blobs of DIR, with no stamp yet; sets SERVE and SERVE_PID.
start_serve() {
    as_principal "$LEASEHOLD" serve --objects "$1" --listen 127.0.0.1:0 >"$WORK/serve.out" 2>"$WORK/serve.err" &
    SERVE_PID=$(child_of $!)
    track_pid "$SERVE_PID"
    local i
    for ((i = 0; i < 200; i++)); do
        SERVE=$(sed -n 's/^listening on //p' "$WORK/serve.out")
        [ -z "$SERVE" ] || return 0
        sleep 0.05
    done
    die "the server doesn't start: $(cat "$WORK/serve.err")"
}

wait_for_answer() {
    local i
    for ((i = 0; i < 200; i++)); do
        curl -s -o /dev/null "$1" && return 0
        sleep 0.05
    done
    die "$1 doesn't answer"
}

# Reads each blob once, 8 at a time.
read_each() {
    sed "s|.*|url = \"$1&\"\noutput = /dev/null|" "$2.urls" >"$WORK/curl.conf"
    curl --silent --fail --parallel --parallel-max 8 --config "$WORK/curl.conf"
}

# Prints how many blobs a second 8 clients get, each any of them again and again.
requests_per_second() {
    cat >"$WORK/urls.lua" <<END
local urls = {}
for line in io.lines("$2.urls") do urls[#urls + 1] = line end
local next = 0
request = function() next = next % #urls + 1; return wrk.format("GET", urls[next]) end
done = function(summary) if summary.errors.status + summary.errors.read > 0 then print("FAILED") end end
END
    wrk -t1 -c8 -d"$SERVE_SECONDS"s -s "$WORK/urls.lua" "$1" |
        awk '/^Requests\/sec/ { print $2 } /FAILED/ { exit 1 }'
}

bench_serve() {
    local objects=$1/objects run
    need_packages nginx-light:/usr/sbin/nginx wrk:wrk curl:curl procps:pgrep
    make_blobs "$objects"
    start_nginx "$objects"
    for ((run = 1; run <= RUNS; run++)); do
        keep_sample serve-each nginx "$(timed read_each "$NGINX" "$objects")"
        start_serve "$objects"
        keep_sample serve-each leasehold "$(timed read_each "$SERVE" "$objects")"
        keep_sample serve nginx "$(requests_per_second "$NGINX" "$objects")"
        keep_sample serve leasehold "$(requests_per_second "$SERVE" "$objects")"
        stop_pid "$SERVE_PID"
    done
    print_claim "8 clients get $(median serve leasehold) blobs of 1 MiB a second, of nginx $(median serve nginx); share" \
        "$(ratio "$(median serve leasehold)" "$(median serve nginx)")" at-least 0.6
    print_claim "$BLOBS of them hashed and sent once in $(median serve-each leasehold) s, by nginx in $(median serve-each nginx) s; share" \
        "$(ratio "$(median serve-each nginx)" "$(median serve-each leasehold)")" at-least 0.3
}
