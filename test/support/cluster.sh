#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Several nodes on one machine, for tests. A node is a set of namespaces (net, pid, mount, ipc, uts) with an sshd, a
# host name, /tmp, /run and /dev/shm, and a cable to a switch. The rest of the file system is shared. Slurm can be
# started on the nodes. Needs root; changes nothing outside DIR and the namespaces.
#
#   cluster.sh DIR usable [slurm]     fail and print the reason if nodes (with Slurm) are impossible here
#   cluster.sh DIR up N [slurm]       create nodes 1..N; slurm: also node N+1, the head, with Slurm on all
#   cluster.sh DIR down               remove everything
#   cluster.sh DIR exec I COMMAND...  run the command in node I
#   cluster.sh DIR env                print shell settings for mpirun in a node, for eval
#   cluster.sh DIR hosts SLOTS [I...] print a host file of the nodes I (default: all); for MPICH if TEST_MPI=mpich
#   cluster.sh DIR name I             print the host name of node I
#   cluster.sh DIR link I up|down     connect or disconnect the cable of node I
#   cluster.sh DIR crash I            disconnect the cable and kill all processes: power failure
#   cluster.sh DIR boot I             restart a crashed node with an empty /tmp
#   cluster.sh DIR head COMMAND...    run the command (sbatch, squeue, scontrol) on the head
#   cluster.sh DIR wait JOB           wait until the job has left the queue, at most 5 minutes; print its state
#
# DIR, TEST_BUILD, TEST_SOURCE and the folders of CLUSTER_SHARED are visible in the nodes even if they are under /tmp.
set -eu
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
[ $# -ge 2 ] || { sed -n '3,20s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd) command=$2
shift 2
state=$dir/cluster network=10.90.0
prefix= computing=0 nodes=0 shared= head_node=
[ ! -f "$state/conf" ] || . "$state/conf"

fail() { echo "cluster.sh: $*" >&2; exit 1; }
process_of() { cat "$state/$prefix$1/pid" 2>/dev/null || echo 0; }
runs() { [ -d "/proc/$(process_of "$1")/ns" ]; }

# enter I COMMAND...: run the command in all namespaces of the node.
enter() {
    runs "$1" || fail "node $1 is off"
    process=$(process_of "$1")
    shift
    nsenter -t "$process" -n -u -m -i -p --wd="$PWD" -- "$@"
}

usable() {
    [ "$(id -u)" = 0 ] || { echo 'needs root, for namespaces'; return 1; }
    needed='unshare nsenter ip tc ssh ssh-keygen /usr/sbin/sshd'
    [ "${1:-}" != slurm ] || needed="$needed sbatch /usr/sbin/slurmctld /usr/sbin/slurmd /usr/sbin/munged"
    for program in $needed; do
        command -v "$program" >/dev/null 2>&1 || { echo "there is no $program"; return 1; }
    done
    unshare --net --uts --mount --ipc --pid --fork true 2>/dev/null || { echo 'namespaces are not allowed'; return 1; }
}

# ---- nodes

write_keys() {
    [ -f "$state/key" ] || ssh-keygen -q -t ed25519 -N '' -C node -f "$state/key"
    [ -f "$state/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C host -f "$state/host_key"
    cat >"$state/ssh_config" <<END
Host *
  IdentityFile $state/key
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  GlobalKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 5
END
    printf '#!/bin/sh\nexec ssh -F %s/ssh_config "$@"\n' "$state" >"$state/agent" # Hydra passes no options to ssh
    chmod 755 "$state/agent"
}

write_sshd_config() {
    cat >"$1/sshd_config" <<END
ListenAddress $network.$2
HostKey $state/host_key
AuthorizedKeysFile $state/key.pub
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions 100
END
}

write_hosts() {
    echo '127.0.0.1 localhost'
    for i in $(seq 1 "$nodes"); do echo "$network.$i $prefix$i"; done
}

plug() {
    ip netns list | grep -qw "$prefix$1" || ip netns add "$prefix$1"
    ip -n "$prefix$1" link set lo up
    if ! ip -n "${prefix}switch" link show "port$1" >/dev/null 2>&1; then
        ip -n "${prefix}switch" link add "port$1" type veth peer name eth0 netns "$prefix$1"
        ip -n "${prefix}switch" link set "port$1" master bridge
        ip -n "$prefix$1" addr add "$network.$1/24" dev eth0
    fi
    ip -n "${prefix}switch" link set "port$1" up
    ip -n "$prefix$1" link set eth0 up
}

boot() {
    ! runs "$1" || return 0
    folder=$state/$prefix$1
    rm -rf "$folder/tmp" "$folder/pid"
    mkdir -p "$folder/tmp"
    chmod 1777 "$folder/tmp"
    write_hosts >"$folder/hosts"
    write_sshd_config "$folder" "$1"
    plug "$1"
    setsid nsenter --net="/run/netns/$prefix$1" unshare --uts --mount --ipc --pid --fork --propagation private \
        --kill-child=KILL sh "$self" "$dir" init "$1" </dev/null >"$folder/log" 2>&1 &
    starter=$! tries=0
    until [ -s "$folder/pid" ] && enter "$1" sh -c "ssh -F $state/ssh_config $network.$1 true" 2>"$folder/ssh.log"; do
        sleep 0.05
        tries=$((tries + 1))
        if [ $tries -ge 200 ] || ! kill -0 $starter 2>/dev/null; then
            kill -9 $starter 2>/dev/null || true
            fail "node $1 did not come up: $(cat "$folder/log" "$folder/sshd.log" "$folder/ssh.log" 2>/dev/null)"
        fi
    done
}

# First process of a node: adopts and reaps orphans.
init() {
    folder=$state/$prefix$1
    read -r outer rest </proc/self/stat # /proc is still the one outside the namespace
    hostname "$prefix$1"
    mount --bind "$folder/hosts" /etc/hosts
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/sshd /run/keep
    kept=0
    IFS=:
    for path in $shared; do
        kept=$((kept + 1))
        mkdir "/run/keep/$kept"
        mount --rbind "$path" "/run/keep/$kept"
    done
    mount --bind "$folder/tmp" /tmp
    kept=0
    for path in $shared; do
        kept=$((kept + 1))
        mkdir -p "$path"
        mount --move "/run/keep/$kept" "$path"
    done
    unset IFS
    cd /
    /usr/sbin/sshd -f "$folder/sshd_config" -E "$folder/sshd.log"
    echo "$outer" >"$folder/pid"
    trap 'exit 0' TERM
    while :; do
        sleep 1000000 &
        wait $!
    done
}

kill_node() {
    runs "$1" || return 0
    process=$(process_of "$1")
    kill -9 "$process"
    while [ -d "/proc/$process" ]; do sleep 0.02; done
    rm -f "$state/$prefix$1/pid"
}

up() {
    [ ! -f "$state/conf" ] || fail "there are nodes in $dir already"
    mkdir -p "$state"
    chmod 755 "$dir" "$state"
    computing=$1 nodes=$1 prefix=n$$x
    [ "${2:-}" != slurm ] || { nodes=$((nodes + 1)); head_node=$nodes; }
    # Mount folders under /tmp, which is private to a node. A folder inside a mounted one needs no mount.
    for path in "$dir" "${TEST_BUILD:-$dir}" "${TEST_SOURCE:-$dir}" ${CLUSTER_SHARED:-}; do
        path=$(cd "$path" && pwd)
        case :$shared: in *:"$path":*) continue ;; esac
        case $path in /tmp/*) shared=$shared${shared:+:}$path ;; esac
    done
    printf 'prefix=%s computing=%s nodes=%s head_node=%s shared="%s"\n' "$prefix" "$computing" "$nodes" \
        "$head_node" "$shared" >"$state/conf"
    trap 'status=$?; [ $status = 0 ] || down; exit $status' EXIT
    trap 'exit 1' INT TERM
    write_keys
    ip netns add "${prefix}switch"
    ip -n "${prefix}switch" link add bridge type bridge stp_state 0 forward_delay 0
    ip -n "${prefix}switch" link set bridge up
    for i in $(seq 1 "$nodes"); do boot "$i"; done
    [ "${2:-}" != slurm ] || slurm_up
}

down() {
    [ -f "$state/conf" ] || return 0
    for i in $(seq 1 "$nodes"); do
        kill_node "$i"
        ip netns del "$prefix$i" 2>/dev/null || true
    done
    ip netns del "${prefix}switch" 2>/dev/null || true
    rm -rf "$state"
}

# TCP keep-alive lets mpirun notice a disconnected cable within seconds. A user's job would set the same interfaces.
environment() {
    cat <<END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent='ssh -F $state/ssh_config'
export OMPI_MCA_btl_tcp_if_include=$network.0/24 OMPI_MCA_oob_tcp_if_include=$network.0/24
export OMPI_MCA_oob_tcp_keepalive_time=4 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1
# The same for Open MPI 5.
export PRTE_MCA_plm_ssh_agent='ssh -F $state/ssh_config' PRTE_MCA_oob_tcp_if_include=$network.0/24
export PRTE_MCA_oob_tcp_keepalive_time=4 PRTE_MCA_oob_tcp_keepalive_intvl=1 PRTE_MCA_oob_tcp_keepalive_probes=3
export PRTE_MCA_prte_keepalive_time=4 PRTE_MCA_prte_keepalive_intvl=1 PRTE_MCA_prte_keepalive_probes=3 # Open MPI 6
export PRTE_MCA_hwloc_default_binding_policy=none
# The agent and the interface for MPICH, which has no keep-alive.
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$state/agent HYDRA_IFACE=eth0
END
}

# ---- Slurm

write_slurm_config() {
    mkdir -p "$state/slurm/state"
    head -c 128 /dev/urandom >"$state/slurm/munge.key"
    chmod 600 "$state/slurm/munge.key"
    cat >"$state/slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$prefix$head_node
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
StateSaveLocation=$state/slurm/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=$state/slurm/slurmctld.log
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/run/slurmd
SlurmdLogFile=$state/slurm/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmix
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldTimeout=10
SlurmdTimeout=15
MessageTimeout=5
BatchStartTimeout=10
KillWait=5
MinJobAge=600
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,requeue_delay=1
JobRequeue=1
NodeName=$prefix[1-$computing] CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=8000
PartitionName=main Nodes=$prefix[1-$computing] Default=YES MaxTime=INFINITE State=UP
END
    echo CgroupPlugin=cgroup/v1 >"$state/slurm/cgroup.conf" # the plugin that works without cgroups
}

munged() {
    enter "$1" sh -c 'mkdir -p /run/munge && exec /usr/sbin/munged --force --key-file="$0/munge.key" \
        --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid --log-file=/run/munge/munged.log \
        --seed-file=/run/munge/seed --num-threads=2' "$state/slurm"
}

slurmd() {
    munged "$1"
    enter "$1" sh -c 'mkdir -p /run/slurmd && exec /usr/sbin/slurmd -f "$0/slurm.conf" -N "$1"' "$state/slurm" "$prefix$1"
}

head_run() { enter "$head_node" env SLURM_CONF="$state/slurm/slurm.conf" "$@"; }

slurm_up() {
    write_slurm_config
    munged "$head_node"
    enter "$head_node" /usr/sbin/slurmctld -f "$state/slurm/slurm.conf"
    for i in $(seq 1 $computing); do slurmd "$i"; done
    tries=0
    until [ "$(head_run sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = $computing ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "Slurm did not come up: see $state/slurm"
    done
}

job_state() { head_run scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }

job_wait() {
    tries=0
    # Slurm may not answer at once: then the state is empty.
    while [ $tries -lt 1500 ]; do
        found=$(job_state "$1")
        case $found in '' | PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED | REQUEUE*) ;; *) break ;; esac
        sleep 0.2
        tries=$((tries + 1))
    done
    echo "$found"
}

case $command in
usable) usable "$@" ;;
up) up "$@" ;;
down) down ;;
init) init "$@" ;;
exec) enter "$@" ;;
env) environment ;;
hosts)
    slots=' slots=' # of Open MPI
    [ "${TEST_MPI:-}" != mpich ] || slots=:
    each=$1
    shift
    for i in ${*:-$(seq 1 $computing)}; do echo "$prefix$i$slots$each"; done
    ;;
name) echo "$prefix$1" ;;
link) ip -n "${prefix}switch" link set "port$1" "$2" ;;
crash) ip -n "${prefix}switch" link set "port$1" down; kill_node "$1" ;;
boot) boot "$1"; ip -n "${prefix}switch" link set "port$1" up ;;
head) head_run "$@" ;;
wait) job_wait "$@" ;;
*) fail "unknown command $command" ;;
esac
