# What the job scripts share; they source it and call `train`. A job that is cut by its time limit, or loses a node,
# goes back to the queue and on from its newest checkpoint, until the run is finished. All of it is in docs/clusters.md.
#
# From the environment of sbatch:
#   VITTRAIN_HOME       where the program, jobs/ and input/ lie (default: where sbatch was called)
#   VITTRAIN            the program (default: $VITTRAIN_HOME/vittrain, or the one that is installed)
#   VITTRAIN_SETUP      a file to source first: modules, paths
#   VITTRAIN_RUNS       where run folders are made (default: runs)
#   VITTRAIN_INTERFACE  the network between the nodes: eth0, ib0 (default: what the libraries choose)
#   VITTRAIN_BIND       none: ranks are not bound to cores, where nodes have too few of them
#   LAUNCHER            srun (default) or mpirun
#   VITTRAIN_SWEEP      the folder of a sweep: the job takes trials of it (vittrain sweep ... sweep.slurm=SCRIPT sets it)

[ -z "$VITTRAIN_SETUP" ] || . "$VITTRAIN_SETUP"
vittrain=${VITTRAIN:-$home/vittrain}
[ -x "$vittrain" ] || vittrain=vittrain # installed
ranks_per_node=$SLURM_NTASKS_PER_NODE
ranks=$((SLURM_JOB_NUM_NODES * ranks_per_node))
# The cores of the node are for its ranks, unless --cpus-per-task says otherwise.
cores=${SLURM_CPUS_PER_TASK:-$((SLURM_CPUS_ON_NODE / ranks_per_node))}
[ "$cores" -gt 0 ] || cores=1

# A lost cable is seen in 7 s.
export OMPI_MCA_oob_tcp_keepalive_time=4 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
if [ -n "$VITTRAIN_INTERFACE" ]; then
    export OMPI_MCA_btl_tcp_if_include=$VITTRAIN_INTERFACE OMPI_MCA_oob_tcp_if_include=$VITTRAIN_INTERFACE
    export NCCL_SOCKET_IFNAME=$VITTRAIN_INTERFACE
fi

# What the ranks of a node say goes to a file of that node. Ranks are bound to cores; each takes the GPU of its
# number on the node. Slurm must not bind those: ranks of a node reach each other's.
sweep=() # in front of the launcher; it has files of its own for what trials say
launch_by_srun() {
    bind='--cpu-bind=cores --distribution=block:block' output="--open-mode=append --output=$logs.%N.log"
    [ "$VITTRAIN_BIND" != none ] || bind=
    [ ${#sweep[@]} -eq 0 ] || output=
    exec "${sweep[@]}" srun --mpi=pmix --kill-on-bad-exit=1 --ntasks="$ranks" --cpus-per-task="$cores" $bind \
        $output "$@"
}

launch_by_mpirun() {
    bind="--map-by ppr:$ranks_per_node:node:PE=$cores --bind-to core"
    [ "$VITTRAIN_BIND" != none ] || bind="--map-by ppr:$ranks_per_node:node --oversubscribe --bind-to none"
    exec "${sweep[@]}" mpirun -np "$ranks" $bind "$@" >>"$logs.mpirun.log" 2>&1
}

say() { echo "$(date '+%F %T') part $((SLURM_RESTART_COUNT + 1)): $*"; }

# By this part: what is there may tell of an earlier one, with fewer epochs.
is_finished() { [ "$run/result.json" -nt "$began" ] && grep -q '"finished": true' "$run/result.json"; }

# Slurm's warning before the time limit comes to this shell (--signal=B:USR1@120); the ranks stop at the end of a step.
stop() {
    stopped=yes
    say "the time is nearly over: asking the ranks to stop"
    [ -z "$launcher" ] || kill -USR1 "$launcher"
}
stopped=no launcher=
trap stop USR1
# scancel: srun and the ranks have heard of it, too, and get Slurm's KillWait to end in.
trap 'say "ended by Slurm"' TERM

# A trap ends `wait` early.
wait_for_launcher() {
    wait "$launcher"
    status=$?
    while kill -0 "$launcher" 2>/dev/null; do
        wait "$launcher"
        status=$?
    done
}

# The script ends when Slurm ends it, so that nothing comes between.
requeue() {
    trap - TERM
    say "$1: the job goes back to the queue"
    scontrol requeue "$SLURM_JOB_ID" && sleep 600
    say "it could not: submit the same again, with run.dir=$run"
    exit 1
}

# The trials of a sweep, one after another, until none is left or the time is nearly over. Who goes on with a trial
# that was cut off is `vittrain sweep`'s affair. Settings of the job's script are for all trials.
take_trials() {
    logs=$SLURM_JOB_NAME.$SLURM_JOB_ID
    sweep=("$vittrain" sweep "$VITTRAIN_SWEEP" "$@" --)
    say "$ranks ranks on $SLURM_JOB_NODELIST, $cores cores each, by ${LAUNCHER:=srun}; trials of $VITTRAIN_SWEEP"
    "launch_by_$LAUNCHER" &
    launcher=$!
    [ $stopped = no ] || kill -USR1 "$launcher"
    wait_for_launcher
    say "the sweep ended with status $status"
    [ $stopped = no ] || requeue 'perhaps not finished'
    exit "$status"
}

# train WORD...: runs vittrain until it ends or is stopped; then ends the job or puts it back into the queue.
train() {
    [ -z "$VITTRAIN_SWEEP" ] || take_trials checkpoint.every_seconds=10m "$@"
    run=${VITTRAIN_RUNS:-runs}/$SLURM_JOB_NAME-$SLURM_JOB_ID logs=$SLURM_JOB_NAME.$SLURM_JOB_ID deck=
    for word in "$@"; do
        case $word in
        run.dir=*) run=${word#run.dir=} ;;
        *.ini) deck=$word ;;
        esac
    done
    [ -n "$deck" ] || set -- "$home/input/vit_cifar.ini" "$@"
    say "$ranks ranks on $SLURM_JOB_NODELIST, $cores cores each, by ${LAUNCHER:=srun}; run folder $run"
    mkdir -p "$run" && began=$run/.began && touch "$began" || exit 1 # its date is that file system's, as a checkpoint's
    "launch_by_$LAUNCHER" "$vittrain" run.dir="$run" checkpoint.every_seconds=10m "$@" &
    launcher=$!
    [ $stopped = no ] || kill -USR1 "$launcher" # it came before there was anybody to tell
    wait_for_launcher
    say "$LAUNCHER ended with status $status"
    if is_finished; then
        exit "$status"
    elif [ $stopped = yes ]; then
        requeue 'not finished'
    elif [ "$status" -ne 0 ] && [ "$run/checkpoints/last.h5" -nt "$began" ]; then
        requeue 'a failure after a new checkpoint' # without a new one it would fail in the same place for ever
    fi
    exit "$status"
}
