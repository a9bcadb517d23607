# SPDX-License-Identifier: BSD-3-Clause
# Shared by the job scripts, which source it and call `train`. A job that reaches its time limit or loses a node is
# requeued and resumes from its newest checkpoint, until the run is finished. See docs/clusters.md.
#
# Environment variables of sbatch:
#   VITTRAIN_HOME       folder of the program, jobs/ and input/ (default: where sbatch was called)
#   VITTRAIN            the program (default: $VITTRAIN_HOME/vittrain, or the installed one)
#   VITTRAIN_SETUP      a file to source first: modules, paths
#   VITTRAIN_RUNS       parent of the run folders (default: runs)
#   VITTRAIN_INTERFACE  the network between the nodes: eth0, ib0 (default: the choice of the libraries)
#   VITTRAIN_BIND       none: do not bind ranks to cores, for nodes with too few cores
#   VITTRAIN_LOGS       job: one log of all ranks (default on more than 64 nodes); node: one log per node
#   LAUNCHER            srun (default), or the mpirun of Open MPI
#   SLURM_MPI_TYPE      value of --mpi for srun: pmix for Open MPI (default), pmi2 for MPICH
#   VITTRAIN_SWEEP      words for tools/sweep.py: the job runs trials of a sweep, together with the other jobs of its array

[ -z "$VITTRAIN_SETUP" ] || . "$VITTRAIN_SETUP"
vittrain=${VITTRAIN:-$home/vittrain}
[ -x "$vittrain" ] || vittrain=vittrain # installed
ranks_per_node=$SLURM_NTASKS_PER_NODE
ranks=$((SLURM_JOB_NUM_NODES * ranks_per_node))
# The ranks share the cores of the node, unless --cpus-per-task is given.
cores=${SLURM_CPUS_PER_TASK:-$((SLURM_CPUS_ON_NODE / ranks_per_node))}
[ "$cores" -gt 0 ] || cores=1

# mpirun notices a lost connection after 7 s. The names are those of Open MPI 4, 5 and 6.
for name in OMPI_MCA_oob_tcp PRTE_MCA_oob_tcp PRTE_MCA_prte; do
    export ${name}_keepalive_{time=4,intvl=1,probes=3}
    [ -z "$VITTRAIN_INTERFACE" ] || export ${name}_if_include="$VITTRAIN_INTERFACE"
done
[ -z "$VITTRAIN_INTERFACE" ] || export OMPI_MCA_btl_tcp_if_include=$VITTRAIN_INTERFACE NCCL_SOCKET_IFNAME=$VITTRAIN_INTERFACE
# Open MPI 5 finds no routes to a node's own IPv6 addresses and prints a message. Runs on one node or with a given
# interface need no routes.
[ -z "$VITTRAIN_INTERFACE" ] && [ "$SLURM_JOB_NUM_NODES" -gt 1 ] || export OMPI_MCA_reachable=^netlink

# srun writes the output of each node to one file, or that of all nodes to one file (VITTRAIN_LOGS). Ranks are bound to cores; each uses
# the GPU with its local rank. Slurm must not bind GPUs, because the ranks of a node access each other's.
sweep=() # words before the launcher; a sweep writes the output of trials to its own files
launch_by_srun() {
    [ "$SLURM_JOB_NUM_NODES" -gt 64 ] && by=job || by=node
    [ "${VITTRAIN_LOGS:-$by}" = job ] && name=srun || name=%N
    bind='--cpu-bind=cores --distribution=block:block' output="--open-mode=append --output=$logs.$name.log"
    [ "$VITTRAIN_BIND" != none ] || bind=
    [ ${#sweep[@]} -eq 0 ] || output=
    exec "${sweep[@]}" srun --mpi="${SLURM_MPI_TYPE:-pmix}" --kill-on-bad-exit=1 --ntasks="$ranks" \
        --cpus-per-task="$cores" $bind $output "$@"
}

launch_by_mpirun() {
    bind="--map-by ppr:$ranks_per_node:node:PE=$cores --bind-to core"
    [ "$VITTRAIN_BIND" != none ] || bind="--map-by ppr:$ranks_per_node:node --oversubscribe --bind-to none"
    [ ${#sweep[@]} -gt 0 ] || sweep=("$vittrain" launch --restarts 0 --) # mpirun kills its ranks at SIGTERM
    exec "${sweep[@]}" mpirun -np "$ranks" $bind "$@" >>"$logs.mpirun.log" 2>&1
}

say() { echo "$(date '+%F %T') attempt $((SLURM_RESTART_COUNT + 1)): $*"; }

# True if this attempt finished the run; an older result.json may be of an attempt with fewer epochs.
is_finished() { [ "$run/result.json" -nt "$began" ] && grep -q '"finished": true' "$run/result.json"; }

# Slurm sends its warning before the time limit to this shell (--signal=B:USR1@120); the ranks stop after the step.
stop() {
    stopped=yes
    say "the time limit is near: asking the ranks to stop"
    [ -z "$launcher" ] || kill -USR1 "$launcher"
}
stopped=no launcher=
trap stop USR1
# scancel also sends SIGTERM to srun and the ranks, which must end within Slurm's KillWait.
trap 'say "ended by Slurm"' TERM

# Set $status to that of the launcher. A trap interrupts `wait`, so repeat it until the launcher has ended.
wait_for_launcher() {
    wait "$launcher"
    status=$?
    while kill -0 "$launcher" 2>/dev/null; do
        wait "$launcher"
        status=$?
    done
}

# note_lengths: store the lengths of the ranks' logs, to which all attempts append.
note_lengths() {
    declare -gA length=()
    for log in "$logs".*.log; do
        [ ! -e "$log" ] || length[$log]=$(wc -c <"$log")
    done
}

# report_reason: name the log of the ranks that has the reason of a failure since note_lengths, with its last error line.
report_reason() {
    for log in "$logs".*.log; do
        reason=$(tail -c +$((${length[$log]:-0} + 1)) "$log" 2>/dev/null |
            grep -aE 'vittrain: (error|failure|internal error): |slurmstepd: error: |mpirun noticed that ' | tail -n 1)
        [ -z "$reason" ] || { say "the reason is in $PWD/$log: $reason" && return; }
    done
    say "no reason was printed: see the output of the ranks in $PWD/$logs.*.log"
}

# requeue REASON: requeue the job. Slurm then ends this script, which sleeps until then.
requeue() {
    trap - TERM
    say "$1: requeueing the job"
    scontrol requeue "$SLURM_JOB_ID" && sleep 600
    say "requeue failed: submit the same job again with run.dir=$run"
    exit 1
}

# Run trials of a sweep until none is left or the time limit is near. tools/sweep.py resumes interrupted trials.
take_trials() {
    logs=$SLURM_JOB_NAME.$SLURM_JOB_ID
    read -ra sweep <<<"$VITTRAIN_SWEEP"
    sweep=("$home/tools/sweep.py" "${sweep[@]}" --)
    say "$ranks ranks on $SLURM_JOB_NODELIST, $cores cores each, by ${LAUNCHER:=srun}; sweep $VITTRAIN_SWEEP"
    "launch_by_$LAUNCHER" "$vittrain" checkpoint.every_seconds=10m "$@" &
    launcher=$!
    [ $stopped = no ] || kill -USR1 "$launcher"
    wait_for_launcher
    say "the sweep ended with status $status"
    [ $stopped = no ] || requeue 'perhaps not finished'
    exit "$status"
}

# restore WORD...: copy the run back from output.upload if a restarted job does not find its checkpoints.
restore() {
    [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && ! ls "$run"/checkpoints/step-*.h5 >/dev/null 2>&1 || return 0
    upload=$("$vittrain" --help output.upload "$@") || { say 'output.upload cannot be read: the run is not copied back' && return 0; }
    upload=$(echo "$upload" | sed -n 's/^  set to:  //p')
    [ -n "$upload" ] || return 0
    case $upload in *[/:]) upload=$upload$(basename "$(realpath "$run")") ;; esac
    say "no checkpoint in $run: copying it from $upload"
    rclone copy --links "$upload" "$run"
    status=$?
    [ $status -eq 0 ] || [ $status -eq 3 ] || { say "rclone failed with status $status" && exit 1; } # 3: no such folder
}

# train WORD...: run vittrain until it ends or is stopped, then end or requeue the job.
train() {
    run=${VITTRAIN_RUNS:-runs}/$SLURM_JOB_NAME-$SLURM_JOB_ID logs=$SLURM_JOB_NAME.$SLURM_JOB_ID deck=no
    for word in "$@"; do
        case $word in
        run.dir=*) run=${word#run.dir=} ;;
        *.ini) deck=yes ;;
        esac
    done
    [ $deck = yes ] || set -- "$home/input/vit_cifar.ini" "$@"
    [ -z "$VITTRAIN_SWEEP" ] || take_trials "$@"
    say "$ranks ranks on $SLURM_JOB_NODELIST, $cores cores each, by ${LAUNCHER:=srun}; run folder $run"
    mkdir -p "$run" && began=$run/.began && touch "$began" || exit 1 # dated by the same file system as checkpoints
    restore "$@"
    note_lengths
    for try in 1 2; do
        "launch_by_$LAUNCHER" "$vittrain" run.dir="$run" checkpoint.every_seconds=10m "$@" &
        launcher=$!
        [ $stopped = no ] || kill -USR1 "$launcher" # the warning came before the launcher was started
        wait_for_launcher
        say "$LAUNCHER ended with status $status"
        # Under srun, ranks of Open MPI rarely crash in MPI_Init (open-mpi/ompi#12495).
        [ $try = 1 ] && [ "$status" -eq 139 ] && ! [ "$run/train.log" -nt "$began" ] || break
        say "a rank crashed before the run began: starting $LAUNCHER again"
    done
    if is_finished; then
        exit "$status"
    fi
    [ "$status" -eq 0 ] || [ $stopped = yes ] || report_reason
    if [ $stopped = yes ]; then
        requeue 'not finished'
    elif [ "$status" -ne 0 ] && [ "$run/checkpoints/last.h5" -nt "$began" ]; then
        requeue 'a failure after a new checkpoint' # without one it would fail in the same place again
    fi
    exit "$status"
}
