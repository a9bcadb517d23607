#!/bin/sh
# What mpirun calls instead of ssh in test_nodes.sh: `node_agent.sh HOST COMMAND...` runs the command on
# a "node" of this machine, a process with a host name of its own (UTS namespace) and a disk of its
# own (mount namespace: $NODE_DISK is a different folder, $NODE_DISK-HOST, on each).
host=$1
shift
export NODE_HOST="$host" NODE_COMMAND="$*"
exec unshare --uts --mount sh -c '
    hostname "$NODE_HOST" && mkdir -p "$NODE_DISK-$NODE_HOST" "$NODE_DISK" &&
        mount --bind "$NODE_DISK-$NODE_HOST" "$NODE_DISK" && eval "$NODE_COMMAND"'
