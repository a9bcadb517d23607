#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Sharded inside each of 2 nodes, 4 ranks each; replicated across the nodes, which all-reduce their gradients.
#   sbatch jobs/hsdp_2node.sh [DECK.ini] [section.key=value ...]
#   sbatch --gpus-per-node=4 jobs/hsdp_2node.sh ...      on nodes with GPUs
#SBATCH --job-name=hsdp_2node
#SBATCH --nodes=2
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
train mesh.strategy=hsdp "$@"
