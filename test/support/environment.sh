# SPDX-License-Identifier: BSD-3-Clause
# Environment of all tests. Sourced by the Makefile before each test, and by scripts that run tests without make check.

# Messages in English; awk, sort and printf read and write numbers with a point in any locale.
export LC_ALL=C

# Allow tests as root in a container, with more ranks than cores.
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_mpi_yield_when_idle=1
# Sent to ranks on other nodes, too. Slurm sends the whole environment.
[ -z "${VITTRAIN_CPU:-}" ] || export VITTRAIN_CPU OMPI_MCA_mca_base_env_list=VITTRAIN_CPU
# On a busy machine mpirun of Open MPI 4.1 rarely misses that a rank has called MPI_Finalize (open-mpi/ompi#7833). With this
# setting it does not fail then. Open MPI 5 and MPICH still report a rank that did not call it.
OMPI_MCA_orte_allowed_exit_without_sync=1
# Containers often prohibit reading the memory of other processes.
OMPI_MCA_btl_vader_single_copy_mechanism=none # Open MPI 4
OMPI_MCA_smsc=^cma                            # Open MPI 5
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_mpi_yield_when_idle OMPI_MCA_smsc
export OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_orte_allowed_exit_without_sync

# Threads that wait for others leave the core to them: tests have more threads than cores.
export OMP_WAIT_POLICY=passive

# The rank of a process under mpirun, as a shell expression for eval. src/base/launcher.c reads the same variables.
export TEST_RANK='${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}'

# Hide real GPUs: the tests are for CPUs and the emulated GPU; benchmarks/gpu.sh tests real GPUs.
export CUDA_VISIBLE_DEVICES=

# Sanitizers: ignore leaks of MPI and its helpers. Slow unwinding passes through library functions without frame
# pointers. Requests for too much memory return NULL, as in the C library.
ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:fast_unwind_on_malloc=0:allocator_may_return_null=1
LSAN_OPTIONS=suppressions=$TEST_SOURCE/test/support/lsan.supp:print_suppressions=0
UBSAN_OPTIONS=print_stacktrace=1
TSAN_OPTIONS=suppressions=$TEST_SOURCE/test/support/tsan.supp
export ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
