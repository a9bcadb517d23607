#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command under mpirun on two nodes of this machine, which are network namespaces connected at a given
# rate (token bucket filters at both ends), to simulate a slow network.
#
#   benchmarks/two_nodes.sh RATE RANKS_A_NODE COMMAND...     # RATE as in tc: 1gbit, 100mbit
#
# Needs root, iproute2 and util-linux. Environment: MPIRUN (mpirun --oversubscribe --bind-to none).
set -euo pipefail

if [ "${1:-}" = --agent ]; then # what mpirun calls instead of ssh: --agent HOST COMMAND...
    host=$2
    shift 2
    exec nsenter --net="/run/netns/$host" unshare --uts sh -c 'hostname "$0" && eval "$1"' "$host" "$*"
fi

rate=${1:?RATE} ranks=${2:?RANKS_A_NODE}
shift 2
id=vt$$
scratch=$(mktemp -d)
finish() {
    ip netns del ${id}a 2>/dev/null || true
    ip netns del ${id}b 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

ip netns add ${id}a
ip netns add ${id}b
ip link add ${id}l netns ${id}a type veth peer name ${id}l netns ${id}b
number=0
for node in ${id}a ${id}b; do
    number=$((number + 1))
    ip -n $node link set lo up
    ip -n $node addr add 10.213.7.$number/24 dev ${id}l
    ip -n $node link set ${id}l up
    ip netns exec $node tc qdisc add dev ${id}l root tbf rate "$rate" burst 512kb latency 20ms
    echo "10.213.7.$number $node" >>"$scratch/names"
    echo "$node slots=$ranks" >>"$scratch/hosts"
done
# Each node's host names, and the first one's mpirun, which starts the other through the agent.
script=$(readlink -f "$0")
nsenter --net=/run/netns/${id}a unshare --uts --mount sh -c '
    hostname "$0" && mount --bind "$1/names" /etc/hosts && shift && exec "$@"' ${id}a "$scratch" \
    ${MPIRUN:-mpirun --oversubscribe --bind-to none} -np $((2 * ranks)) --hostfile "$scratch/hosts" \
    --mca plm_rsh_agent "bash $script --agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include 10.213.7.0/24 --mca btl_tcp_if_include 10.213.7.0/24 "$@"
