# The environment of all tests, read by the Makefile before each one (and by .ci/run).

# Tests as root in a container, more ranks than cores, no shared cores to bind to.
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_mpi_yield_when_idle=1
OMPI_MCA_hwloc_base_binding_policy=none
# Containers often forbid one process to read another's memory.
OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_mpi_yield_when_idle
export OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_btl_vader_single_copy_mechanism

# Where there is a GPU: the tests are about CPUs and the emulated GPU; benchmarks/gpu.sh is about real ones.
CUDA_VISIBLE_DEVICES=
export CUDA_VISIBLE_DEVICES

# With sanitizers: what MPI and its helpers leave behind is not ours.
# Slow unwinding sees through functions of libraries without frame pointers. Too large a request for
# memory is refused, as the C library does it.
ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:fast_unwind_on_malloc=0:allocator_may_return_null=1
LSAN_OPTIONS=suppressions=$TEST_SOURCE/test/lsan.supp:print_suppressions=0
UBSAN_OPTIONS=print_stacktrace=1
TSAN_OPTIONS=suppressions=$TEST_SOURCE/test/tsan.supp
export ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
