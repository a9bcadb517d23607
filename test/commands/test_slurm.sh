#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# A job of jobs/ on two nodes under a real Slurm: warned before its time limit, it stops, is requeued, resumes, and
# ends with the weights of an undisturbed job, bit for bit. `vittrain launch` restarts srun.
. "$TEST_SOURCE/test/support/program.sh"

take_nodes 2 slurm
if [ "$TEST_MPI" != mpich ] && ! cluster head srun --mpi=list 2>&1 | grep -q pmix; then
    skip_all 'this Slurm has no plugin for PMIx'
fi
export VITTRAIN_HOME="$TEST_SOURCE" VITTRAIN="$vittrain" VITTRAIN_BIND=none VITTRAIN_INTERFACE=eth0
[ "$TEST_MPI" != mpich ] || export SLURM_MPI_TYPE=pmi2
steps="$small data.root= train.epochs=12 optim.ema=0.9 output.monitor=0"
# An empty deck, so that only the options count. Without a deck the scripts use the one of CIFAR-10.
deck="$work/small.ini"
: >"$deck"

# Each rank waits until the job was warned.
job=$(cluster head sbatch --parsable "$TEST_SOURCE/jobs/ddp_2node.sh" "$deck" $steps debug.pause="backward:2:$work/warned.go")
paused 0 "$work/warned.go" >/dev/null
cluster head scancel --batch --signal=USR1 "$job"
wait_for 'asking the ranks to stop' "ddp_2node.$job.log"
touch "$work/warned.go"
# The first process of the next job crashes.
cat >crash_once <<END
#!/bin/sh
echo "\$*" >>"$PWD/calls"
mkdir "$PWD/crashed" 2>/dev/null && kill -SEGV \$\$
exec "$vittrain" "\$@"
END
chmod +x crash_once
# Meanwhile, because a requeued job waits some seconds. Only mpirun of Open MPI can replace srun.
[ "$TEST_MPI" = mpich ] || export LAUNCHER=mpirun
alone=$(VITTRAIN="$PWD/crash_once" cluster head sbatch --parsable "$TEST_SOURCE/jobs/ddp_2node.sh" "$deck" $steps)
unset LAUNCHER
wait_for 'requeueing the job' "ddp_2node.$job.log"
bad=$(has "ddp_2node.$job.log" 'asking the ranks to stop' 'srun ended with status 0' 'not finished: requeueing the job'
    has "runs/ddp_2node-$job/result.json" '"finished": false')
result 'a job that is warned stops and goes back to the queue' "$bad" "ddp_2node.$job.log"

[ "$(cluster wait "$alone")" = COMPLETED ] && bad= || bad='not completed'
[ "$TEST_MPI" = mpich ] || [ -s "ddp_2node.$alone.mpirun.log" ] || bad="$bad; not started by mpirun"
[ "$TEST_MPI" = mpich ] || grep -q '^launch .*-- mpirun' calls || bad="$bad; without vittrain launch"
grep -q 'a rank crashed before the run began: starting [a-z]* again' "ddp_2node.$alone.log" || bad="$bad; not started again"
result 'a job whose first start crashes ends, if it is left alone' "$bad" "ddp_2node.$alone.log"
[ "$(cluster wait "$job")" = COMPLETED ] && bad= || bad='not completed; '
grep -q 'resuming from' "runs/ddp_2node-$job/train.log" || bad="$bad it began anew; "
bad=$bad$(cmp "runs/ddp_2node-$alone/weights.safetensors" "runs/ddp_2node-$job/weights.safetensors" 2>&1)
column "runs/ddp_2node-$job/metrics.csv" train loss >parts.loss
column "runs/ddp_2node-$alone/metrics.csv" train loss >whole.loss
bad="$bad$(differ whole.loss parts.loss 0)"
result 'the one that was put back goes on, to the same weights, bit for bit' "$bad" "ddp_2node.$job.log"
bad=
for node in 1 2; do
    [ -e "ddp_2node.$job.$(cluster name $node).log" ] || bad="$bad nothing of node $node; "
done
grep -q '8 ranks on 2 nodes' "runs/ddp_2node-$job/train.log" || bad="$bad not on two nodes of 4 ranks"
result 'each node has a log' "$bad"

cat >launch.sbatch <<END
#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=2 --output=launch.log
exec "$vittrain" launch -- srun "$vittrain" $small train.epochs=2 checkpoint.every=0.2 run.dir=launched debug.pause="backward:13:$work/launched.go"
END
job=$(cluster head sbatch --parsable launch.sbatch)
cluster exec 2 kill -9 "$(paused 3 "$work/launched.go")"
touch "$work/launched.go"
[ "$(cluster wait "$job")" = COMPLETED ] && bad= || bad='not completed; '
bad="$bad$(has launch.log '^vittrain: launch: restart 1 of 3 .*: exit code ' 'resuming from launched/checkpoints/step-00000010.h5')"
finished launched || bad="$bad no result"
result 'srun is started again when a rank was killed' "$bad" launch.log

# A sweep as an array of two jobs of one node each; one of them is warned in the middle of a trial.
tiny="$small data.root= train.epochs=6 output.monitor=0 output.tensorboard=off output.weights=off"
job=$(VITTRAIN_SWEEP='swept optim.lr=1e-3,2e-3,3e-3,4e-3' cluster head sbatch --parsable --array=1-2 \
    "$TEST_SOURCE/jobs/ddp_1node.sh" "$deck" $tiny)
wait_for 'set-up took' swept/trial-002/train.log
cluster head scancel --batch --signal=USR1 "${job}_2"
bad=
all_finished() { [ "$(grep -c ',finished,' swept/trials.csv)" = 4 ]; }
wait_until all_finished || bad="not all trials; $(cat swept/trials.csv)"
[ "$(cut -d, -f3 swept/trials.csv | sort -u | tr '\n' ' ')" = '1 2 task ' ] || bad="$bad not by both jobs;"
grep -q '4 ranks' swept/trial-001/train.log || bad="$bad not on 4 ranks;"
grep -hq 'requeueing the job' ddp_1node.*.log || bad="$bad not put back"
[ -s swept/best.ini ] || bad="$bad no best.ini"
result 'a sweep as an array of jobs' "$bad" swept/trials.csv

# Submitted from another folder; then a mistake that the ranks find.
mkdir elsewhere && cd elsewhere || exit 1
job=$(VITTRAIN_HOME= cluster head sbatch --parsable "$TEST_SOURCE/jobs/ddp_2node.sh" "$deck" $steps)
[ "$(cluster wait "$job")" = FAILED ] && bad= || bad='not failed;'
grep -q "^no jobs/common.sh in $PWD: set VITTRAIN_HOME" "ddp_2node.$job.log" || bad="$bad no advice;"
failing=$(VITTRAIN_LOGS=job cluster head sbatch --parsable "$TEST_SOURCE/jobs/ddp_2node.sh" "$deck" $steps data.root="$work/nowhere")
[ "$(cluster wait "$failing")" = FAILED ] || bad="$bad the second job has not failed;"
file=$(sed -n 's/.*the reason is in \([^:]*\): vittrain: error: .*nowhere.*/\1/p' "ddp_2node.$failing.log")
grep -q 'vittrain: error: .*nowhere' "$file" && [ "$file" = "$PWD/ddp_2node.$failing.srun.log" ] || bad="$bad no reason in the log of the job"
cat "ddp_2node.$job.log" "ddp_2node.$failing.log" >failed.log
result 'the log of a job that cannot start, and of one that fails, has the reason' "$bad" failed.log
cd "$work" || exit 1

# A batch script has the variables of a job of two tasks, but is a single process. Two tasks without PMI are refused.
cat >alone.sbatch <<END
#!/bin/sh
#SBATCH --nodes=1 --ntasks=2 --output=alone.log
"$vittrain" plan $small && echo script done
srun --ntasks=1 --mpi=none "$vittrain" plan $small && echo task done
srun --ntasks=2 --mpi=none "$vittrain" $small run.dir=many || echo tasks refused
END
job=$(cluster head sbatch --parsable alone.sbatch)
cluster wait "$job" >/dev/null
bad=
for line in 'script done' 'task done' 'tasks refused'; do
    grep -qx "$line" alone.log || bad="$bad not $line;"
done
[ ! -e many ] || bad="$bad a run was started"
result 'commands in a batch script and in job steps of one and two tasks' "$bad" alone.log
