#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Fully sharded on 1 node: every one of 4 ranks holds a quarter of weights, gradients and moments.
#   sbatch jobs/fsdp_1node.sh [DECK.ini] [section.key=value ...]
#   sbatch --gpus-per-node=4 jobs/fsdp_1node.sh ...      on nodes with GPUs
#SBATCH --job-name=fsdp_1node
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x.%j.log

home=${VITTRAIN_HOME:-$SLURM_SUBMIT_DIR}
[ -e "$home/jobs/common.sh" ] || { echo "no jobs/common.sh in $home: set VITTRAIN_HOME to the folder with jobs/ and input/" >&2; exit 2; }
. "$home/jobs/common.sh"
train mesh.strategy=fsdp "$@"
