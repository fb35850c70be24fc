#!/usr/bin/env bash
# Alert rules and dashboard: a Prometheus server scrapes a mount, loads the rules, and evaluates the
# queries of the dashboard.
source "$(dirname "$0")/lib.sh"
start metrics
plain && skip_all "there is no daemon to look at"
if ! command -v promtool >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus \
        >"$WORK/apt.log" 2>&1 || true
fi
need promtool prometheus python3 curl
export PYTHONDONTWRITEBYTECODE=1
packaging=$REPO/packaging

promtool check rules "$packaging/prometheus/steadfast.rules.yml" >"$WORK/rules.log" 2>&1 ||
    die "rules: $(cat "$WORK/rules.log")"
(cd "$packaging/prometheus" && promtool test rules steadfast.rules.test.yml) \
    >"$WORK/rules.log" 2>&1 ||
    die "tests of rules: $(cat "$WORK/rules.log")"
ok "rules: each fires for what it is for"

free_port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}
mount_port=$(free_port)
server_port=$(free_port)
server=http://127.0.0.1:$server_port

make_volume 64M
mount_volume -o "metrics=127.0.0.1:$mount_port"
cat >"$WORK/prometheus.yml" <<YAML
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: ["$packaging/prometheus/steadfast.rules.yml"]
scrape_configs:
  - job_name: steadfast
    static_configs: [{ targets: ["127.0.0.1:$mount_port"] }]
YAML
promtool check config "$WORK/prometheus.yml" >"$WORK/config.log" 2>&1 ||
    die "configuration: $(cat "$WORK/config.log")"
mkdir "$WORK/data"
prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/data" \
    --web.listen-address="127.0.0.1:$server_port" >"$WORK/prometheus.log" 2>&1 &
own $!

# asked EXPRESSION: whether the server has a value for it.
asked() {
    curl -sf -G --data-urlencode "query=$1" "$server/api/v1/query" | says '"value":'
}

# until_asked WHAT EXPRESSION: waits for a value.
until_asked() {
    local i
    for i in $(seq 120); do
        asked "$2" && return
        # Requests to count.
        head -c 5000 /dev/urandom >"$MNT/file" && sync "$MNT/file" && cat "$MNT/file" >/dev/null
        sleep 0.5
    done
    die "no $1: $(tail -n 3 "$WORK/prometheus.log")"
}

until_asked "figure of the mount" \
    'rate(steadfast_operation_duration_seconds_count{op="sync"}[5s]) > 0'
until_asked "hits" 'rate(steadfast_cache_hits_total[5s]) > 0'
curl -sf "http://127.0.0.1:$mount_port/metrics" >"$WORK/metrics.txt" ||
    die "the mount does not answer"
result=$(python3 "$TESTS/helpers/dashboard.py" "$server" "$WORK/metrics.txt" \
    "$packaging/prometheus/steadfast.rules.yml" "$packaging/grafana/steadfast.json") ||
    die "dashboard"
ok "dashboard: the server answers $result"

asked 'ALERTS{alertname="SteadfastNearlyFull"}' && die "an alert without a reason"
head -c 58M /dev/zero >"$MNT/full" || die "58 MB do not fit"
sync "$MNT/full"
# The alert is pending until it has held for the duration in the rule.
until_asked "alert of a volume that is nearly full" 'ALERTS{alertname="SteadfastNearlyFull"}'
rm "$MNT/full"
ok "a volume that is nearly full raises its alert"
umount_volume
finish
