# etcd and Ceph on this machine, for tests and benchmarks that have sourced tests/lib.sh and called
# its `start`. Their processes end with the script.

# start_etcd: etcd with one member on ETCD_PORT of this machine; its process is ETCD. The port is
# below those that the kernel uses for outgoing connections. If it is taken, etcd ends, and the next
# one is tried. ETCD_FLAGS and ETCD_SCHEME are for TLS, with a function of its own for etcd_answers.
ETCD_DATA=$WORK/etcd
ETCD_SCHEME=http
ETCD_FLAGS=()
ETCD_PORT=
etcd_answers() {
    # The command fails, as there is no such volume.
    { "$STEADFAST" cluster status "cluster://127.0.0.1:$ETCD_PORT/none" 2>&1 || true; } |
        says "etcd knows no volume"
}
# Fails if etcd ends before it answers.
run_etcd() {
    local client="$ETCD_SCHEME://127.0.0.1:$ETCD_PORT" try
    local peer="http://127.0.0.1:$((ETCD_PORT + 1))"
    etcd --data-dir "$ETCD_DATA" --name default --log-level warn --unsafe-no-fsync \
        --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
        --initial-cluster "default=$peer" "${ETCD_FLAGS[@]}" >>"$WORK/etcd.log" 2>&1 &
    ETCD=$!
    own $!
    for try in $(seq 600); do
        [ -d "/proc/$ETCD" ] || return 1
        ! etcd_answers >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    die "etcd does not answer ($try): $(tail -n 5 "$WORK/etcd.log")"
}
start_etcd() {
    local try
    for try in $(seq 20); do
        ETCD_PORT=$((20000 + RANDOM % 10000))
        rm -rf "$ETCD_DATA"
        ! run_etcd || return 0
    done
    die "etcd does not start ($try): $(tail -n 5 "$WORK/etcd.log")"
}
# The same port and data again. A closing connection may briefly hold the port.
restart_etcd() {
    local try
    for try in $(seq 60); do
        ! run_etcd || return 0
        sleep 1
    done
    die "etcd does not come back ($try): $(tail -n 5 "$WORK/etcd.log")"
}
kill_etcd() {
    kill -9 "$ETCD"
    gone "$ETCD" 30 || die "etcd does not die"
    wait "$ETCD" 2>/dev/null || true
}

# start_ceph: a monitor (its process is MON) and an OSD, with keys and the pool `pool`. The
# configuration is CONF. All of it is in $WORK.
CONF=$WORK/ceph.conf
export CEPH_CONF=$CONF

# Ceph listens on this machine only. The port is below those that the kernel uses for outgoing
# connections. If it is taken, the monitor ends, and the next one is tried.
configure_ceph() {
    CEPH_PORT=$((20000 + RANDOM % 10000))
    cat >"$CONF" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:$CEPH_PORT]
mon_initial_members = a
public_network = 127.0.0.0/8
ms_bind_ipv6 = false
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
keyring = $WORK/keyring
log_file = $WORK/\$name.log
mon_cluster_log_file = $WORK/cluster.log
admin_socket =
pid_file =
run_dir = $WORK
crash_dir = $WORK
mon_data = $WORK/mon
osd_data = $WORK/osd
osd_pool_default_size = 1
mon_allow_pool_size_one = true
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
bluestore_block_size = 4294967296
osd_memory_target = 939524096
CONF
}

run_monitor() {
    local fsid try
    fsid=$(awk '/^fsid/ { print $3 }' "$CONF")
    rm -rf "$WORK/mon"
    mkdir "$WORK/mon"
    monmaptool --create --clobber --addv a "[v2:127.0.0.1:$CEPH_PORT]" --fsid "$fsid" \
        "$WORK/monmap" >/dev/null
    ceph-mon --mkfs -i a --monmap "$WORK/monmap" --keyring "$WORK/keyring" >>"$WORK/mon.out" 2>&1
    ceph-mon -f -i a >>"$WORK/mon.out" 2>&1 &
    MON=$!
    own $!
    for try in $(seq 100); do
        [ -d "/proc/$MON" ] || return 1
        ! timeout 5 ceph --connect-timeout 2 fsid >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    die "the monitor does not answer ($try): $(tail -n 5 "$WORK/mon.out")"
}

start_ceph() {
    local try uuid
    for try in $(seq 10); do
        configure_ceph
        rm -f "$WORK/keyring"
        ceph-authtool --create-keyring "$WORK/keyring" --gen-key -n mon. --cap mon 'allow *' \
            >/dev/null
        ceph-authtool "$WORK/keyring" --gen-key -n client.admin \
            --cap mon 'allow *' --cap osd 'allow *' >/dev/null
        ! run_monitor || break
    done
    [ -d "/proc/$MON" ] || die "the monitor does not start ($try): $(tail -n 5 "$WORK/mon.out")"
    uuid=$(cat /proc/sys/kernel/random/uuid)
    mkdir "$WORK/osd"
    ceph osd new "$uuid" >/dev/null
    ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' >"$WORK/osd/keyring"
    truncate -s 4G "$WORK/osd/block"
    ceph-osd -i 0 --mkfs --osd-uuid "$uuid" --keyring "$WORK/osd/keyring" >>"$WORK/osd.out" 2>&1
    ceph-osd -f -i 0 --keyring "$WORK/osd/keyring" >>"$WORK/osd.out" 2>&1 &
    OSD=$!
    own $!
    ceph osd pool create pool 8 8 >/dev/null 2>&1
    timeout 60 rados -p pool create probe ||
        die "the OSD does not answer: $(tail -n 5 "$WORK/osd.out")"
    rados -p pool rm probe
}
