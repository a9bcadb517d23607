#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A node is down or cut off. The job ends within seconds with a line that names the ranks of that node and their last
# status, and leaves no process on any node.
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 3
for node in 1 2 3; do eval "node_$node=$(cluster name $node)"; done
cluster hosts 2 1 2 >"$work/hosts.two"
cluster hosts 1 1 2 3 >"$work/hosts.three"
cluster hosts 1 2 3 >"$work/hosts.others"

# start NAME HOSTS RANKS WORD...: start a job with mpirun on node 1, in the background; return when it trains.
start() {
    name=$1 hosts=$2 ranks=$3
    shift 3
    run_log=$work/$name.log
    on_first timeout $time_limit mpirun -np "$ranks" -hostfile "$work/hosts.$hosts" "$vittrain" run.dir="$work/$name" \
        $small train.epochs=100000 checkpoint.every=0 output.monitor=0 "$@" >"$run_log" 2>&1 </dev/null &
    job=$!
    wait_for '^[^,]*,4,train,' "$work/$name/metrics.csv"
}

ranks_left() { processes "^$vittrain run.dir=$work/$name " | wc -l; }

# gone: wait until no rank is left on any node; print how many are left.
gone() { wait_until no_rank_left || echo "$(ranks_left) ranks are left;"; }
no_rank_left() { [ "$(ranks_left)" = 0 ]; }

# named NAME PATTERN: a line must report the missing heartbeat. A line printed while mpirun ends the job may be lost, so
# the warning before it is accepted, too.
named() {
    grep -qE "(warning|vittrain: failure): $2 \(no heartbeat for ([3-9]|[1-9][0-9])" "$run_log" || bad="$bad no $2;"
    result "$1" "$bad" "$run_log"
}

# ended: wait for mpirun, whose exit status must not be 0, except that Open MPI 5 returns 0 after it lost a node.
ended() {
    wait $job
    status=$?
    [ $status -ne 0 ] || grep -q 'PRTE has lost communication' "$run_log" || bad="$bad exit status 0;"
    [ $status -ne 124 ] || bad="$bad a timeout;"
}

start cut two 4 mesh.heartbeat_timeout=5 # shorter than mpirun's keep-alive (7 s)
sleep 1.5                      # until every rank has sent its step
cluster link 2 down
bad=$(gone)
grep -qE "^vittrain: failure: ranks 2-3 on $node_2 .* last in .*, step [0-9]+, for " "$run_log" ||
    bad="$bad no verdict;"
grep -q 'rank [01] on' "$run_log" && bad="$bad others are named, too;"
named 'a disconnected cable: the ranks behind it are named, and no rank is left on any node' "ranks 2-3 on $node_2"
cluster link 2 up
for process in $(processes "^mpirun -np 4 -hostfile $work/hosts.two "); do kill -9 "$process"; done
wait $job

start off three 3
cluster crash 3
bad=$(gone)
ended
named 'a node that is off' "rank 2 on $node_3"
cluster boot 3

soon= # MPICH's mpirun does not notice a lost node, and by default a missing heartbeat ends the job after 20 to 25 s
[ "$TEST_MPI" != mpich ] || soon=mesh.heartbeat_timeout=10
start first others 2 $soon
cluster crash 2
bad=$(gone)
ended
named "rank 0's node: a rank of another node names it" "rank 0 on $node_2"
