#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Replaces ssh for mpirun in test_nodes.sh: `node_agent.sh HOST COMMAND...` runs the command on a "node" of this
# machine, a process with its own host name (UTS namespace) and its own disk (mount namespace: $NODE_DISK is the
# folder $NODE_DISK-HOST on each node).
host=$1
shift
export NODE_HOST="$host" NODE_COMMAND="$*"
exec unshare --uts --mount sh -c '
    hostname "$NODE_HOST" && mkdir -p "$NODE_DISK-$NODE_HOST" "$NODE_DISK" &&
        mount --bind "$NODE_DISK-$NODE_HOST" "$NODE_DISK" && eval "$NODE_COMMAND"'
