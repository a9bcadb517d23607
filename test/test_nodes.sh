#!/bin/sh
# Two nodes with private disks: a run folder that is not shared is found at the start, the first node
# writes for all, and a run that is resumed there gives the bits of one on a shared disk.
. "$TEST_SOURCE/test/program.sh"

if ! unshare --uts --mount true 2>/dev/null; then
    echo "1..0 # SKIP needs root, for namespaces"
    exit 0
fi
export NODE_DISK="$work/disk"
mkdir "$NODE_DISK"
printf 'nodea slots=2\nnodeb slots=2\n' >"$work/hosts"
steps="$small train.epochs=2 output.tensorboard=off"

# nodes NAME WORD...: 4 ranks on two nodes; the agent's disks are bind mounts.
nodes() {
    run_log=$work/$1.log
    shift
    timeout 120 $MPIRUN -np 4 --hostfile "$work/hosts" --map-by node \
        --mca plm_rsh_agent "sh $TEST_SOURCE/test/node_agent.sh" --mca plm_rsh_no_tree_spawn 1 \
        --mca oob_tcp_if_include lo --mca btl_tcp_if_include lo --mca btl tcp,self \
        "$vittrain" "$@" >"$run_log" 2>&1 </dev/null
    status=$?
}

echo 1..6
nodes shared $steps run.dir="$work/shared"
grep -q '4 ranks on 2 nodes' "$work/shared.log" && bad= || bad="no two nodes"
[ $status -eq 0 ] || bad="exit status $status"
result 'two nodes on a shared disk' "$bad" "$work/shared.log"
nodes private $steps run.dir="$NODE_DISK/run" train.epochs=1
result 'two nodes with private disks' "$([ $status -eq 0 ] || echo "status $status")" \
    "$work/private.log"
written=$(cd "$work" && ls disk-*/run/checkpoints/last.h5)
result 'the first node has the checkpoints' \
    "$([ "$written" = disk-nodea/run/checkpoints/last.h5 ] || echo "only $written")" \
    "$work/private.log"
nodes resumed $steps run.dir="$NODE_DISK/run"
grep -q 'resuming from .*step-00000025.h5' "$work/resumed.log" && bad= || bad="not resumed"
result 'a run is resumed there' "$bad" "$work/resumed.log"
result 'and gives the same bits' "$(cmp "$work/shared/weights.safetensors" \
    "$work/disk-nodea/run/weights.safetensors" 2>&1)" "$work/resumed.log"
nodes refused $steps run.dir="$NODE_DISK/refused" checkpoint.writers=all
bad=$([ $status -eq 5 ] || [ $status -eq 2 ] || echo "exit status $status")
grep -q '^vittrain: error: .*checkpoint.writers' "$work/refused.log" || bad="$bad; no message"
result 'checkpoint.writers=all is refused there' "$bad" "$work/refused.log"
