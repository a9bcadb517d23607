# SPDX-License-Identifier: BSD-3-Clause
# tests: programs with TAP output (cmocka) and scripts with TAP output, a folder for each module. Their lists are
# made by test/list.sh: a new test is a new file.
LDADD = test/libsupport.a $(program_libraries) $(CMOCKA_LIBS)
include test/tests.mk
test_libsupport_a_SOURCES = $(support_sources)

# Each make compares the lists with the files. If a list has changed, Automake and config.status run again.
$(srcdir)/test/tests.mk: list-tests
	@sh $(srcdir)/test/list.sh
list-tests:
.PHONY: list-tests

# Libraries that replace the driver's NVML in tests: a current version and an old one.
nvml_libraries = \
	test/nvml/libnvidia-ml.so.1 \
	test/nvml_old/libnvidia-ml.so.1
test_data = $(nvml_libraries)
CLEANFILES += $(nvml_libraries) test/seconds.log test/failures/*
test/nvml/libnvidia-ml.so.1: $(srcdir)/test/cuda/nvml_stand_in.c
	$(AM_V_CCLD)$(MKDIR_P) test/nvml && \
	$(CC) $(CFLAGS) -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 \
		$(srcdir)/test/cuda/nvml_stand_in.c -o $@
test/nvml_old/libnvidia-ml.so.1: $(srcdir)/test/cuda/nvml_stand_in.c
	$(AM_V_CCLD)$(MKDIR_P) test/nvml_old && \
	$(CC) $(CFLAGS) -DOLD -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 \
		$(srcdir)/test/cuda/nvml_stand_in.c -o $@

# For test/run: each test of test/ranks alone.
EXTRA_PROGRAMS = $(joined_programs)

# The program with counters, for test_start.sh.
EXTRA_PROGRAMS += test/commands/start_count
test_commands_start_count_SOURCES = src/main.c test/commands/start_count.c
test_commands_start_count_LDADD = $(program_libraries)
test_commands_start_count_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=progress_start -Wl,--wrap=transport_run \
	-Wl,--wrap=heartbeat_turn -Wl,--wrap=status_set_phase -Wl,--wrap=gethostname \
	-Wl,--wrap=rename -Wl,--wrap=fsync
test_data += test/commands/start_count$(EXEEXT)

# The jobs of test_comm_death.sh.
EXTRA_PROGRAMS += test/comm/lost_ranks
test_comm_lost_ranks_SOURCES = test/comm/lost_ranks.c test/comm/fake_network.c
test_data += test/comm/lost_ranks$(EXEEXT)

# Checkpoints of version 0.2 for test_resume.sh.
EXTRA_PROGRAMS += test/checkpoint/older_format
test_checkpoint_older_format_SOURCES = test/checkpoint/older_format.c
test_checkpoint_older_format_LDADD = $(HDF5_LIBS)
test_data += test/checkpoint/older_format$(EXEEXT)

# Programs of the benchmarks: make check builds them.
test_data += \
	benchmarks/bench_checkpoint$(EXEEXT) \
	benchmarks/bench_input$(EXEEXT)

# cuDNN's engines, with the real library but without a GPU.
if CUDA
EXTRA_PROGRAMS += test/cuda/cudnn_engines
test_data += test/cuda/cudnn_engines$(EXEEXT)
endif
test_cuda_cudnn_engines_CPPFLAGS = $(AM_CPPFLAGS) $(cuda_cppflags)
test_cuda_cudnn_engines_LDFLAGS = $(AM_LDFLAGS) -L$(CUDA_LIBRARY_DIR) -Wl,-rpath,$(CUDA_LIBRARY_DIR)
test_cuda_cudnn_engines_LDADD = $(engine_objects) $(LDADD) -lcudnn

# The GPU's sources for the host, opened by tests as the module (test/emulation/emulation.h).
# Compiled as for ThreadSanitizer, whose calls the emulation answers. If the tests are built for sanitizers, these
# check the sources without kernels: kernels would be compiled and run four times as long.
emulation_flags = -std=c++17 -O1 -g -fPIC -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-unknown-pragmas \
	-I$(srcdir)/cuda -I$(srcdir)/src -I$(srcdir)/test $(RANDOM123_CFLAGS)
if EMULATION_CHECKS
emulation_checked = -DEMULATION_CHECKS -fsanitize=thread
emulation_host = $(emulation_checked)
emulation_plain = -DEMULATION_CHECKS
else
emulation_host = $(SANITIZER_CFLAGS)
emulation_plain = $(SANITIZER_CFLAGS)
endif
emulation_sources = $(cuda_sources) test/cuda/faulty_kernels.cu
emulation_objects = $(emulation_sources:.cu=.emulated.o) $(emulation_runtime:.cpp=.emulated.o)
SUFFIXES += .cpp .emulated.o
.cu.emulated.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)flags='$(emulation_host)'; ! grep -q __global__ $< || flags='$(emulation_checked)'; \
	$(CXX) $(emulation_flags) $$flags -MMD -MP -MF $@.d -x c++ -c -o $@ $<
.cpp.emulated.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(CXX) $(emulation_flags) $(emulation_plain) -O2 -MMD -MP -MF $@.d -c -o $@ $<
test/emulated-cuda.so: $(emulation_objects) cuda/nvml.module.o
	@$(MKDIR_P) test
	$(AM_V_GEN)$(CXX) -shared $(SANITIZER_CFLAGS) -o $@ $(emulation_objects) cuda/nvml.module.o
if EMULATION
emulated_gpu = test/emulated-cuda.so
endif
test_data += $(emulated_gpu)
CLEANFILES += test/emulated-cuda.so $(emulation_objects) $(emulation_objects:.o=.o.d)
-include $(emulation_objects:.o=.o.d)

if CMOCKA
check_LIBRARIES = test/libsupport.a
check_PROGRAMS = $(test_programs) $(system_test_programs)
check_DATA = $(test_data)
# Long scripts first. With sanitizers all programs and no scripts, which would take minutes.
if SANITIZERS
TESTS = $(check_PROGRAMS)
else
TESTS = $(long_test_scripts) $(test_scripts) $(test_programs)
system_tests = $(system_test_scripts) $(system_test_programs)
endif
endif
TEST_EXTENSIONS = .sh
# --comments: the explanation of a failure is printed with its result, also if only that output is kept.
tap_driver = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER = $(tap_driver) --merge --comments
LOG_COMPILER = $(SHELL) $(srcdir)/test/support/run_test.sh
SH_LOG_DRIVER = $(tap_driver) --merge --comments
SH_LOG_COMPILER = $(SHELL)
# Each test has its own folder for temporary files. In a common one, runs of several tests disturb each other: Open MPI
# removes its session folder when a run ends, also while another run starts.
# test/seconds.log has the seconds of each test.
AM_TESTS_ENVIRONMENT = \
	TMPDIR=`mktemp -d`; export TMPDIR; begin=`date +%s`; \
	trap 'rm -rf "$$TMPDIR"; echo "$$((`date +%s` - begin)) $$f" >>test/seconds.log' EXIT; \
	MPIRUN='$(MPIRUN) $(MPIRUN_FLAGS)' TEST_MPI=$(MPI_NAME); export MPIRUN TEST_MPI; \
	TEST_SOURCE='$(abs_top_srcdir)'; export TEST_SOURCE; \
	TEST_BUILD='$(abs_top_builddir)'; export TEST_BUILD; \
	. $(srcdir)/test/support/environment.sh;

check-local:
if !CMOCKA
	@echo "make check: cmocka is missing: install it (Debian, Ubuntu: libcmocka-dev), then run configure again" >&2; exit 1
endif

# Tests that depend on time and load; those that fail are repeated.
check-system:
	@CHECK='$(MAKE) $(AM_MAKEFLAGS) -O' sh '$(srcdir)/test/support/check_system.sh' $(system_tests)
.PHONY: check-system

# Runs with every fault that clusters cause (an hour; root), whose results are written to FAULTS_CSV, and random faults with
# checkpoints in memory.
check-faults: vittrain
	cd '$(abs_builddir)' && for script in check_faults check_memory_faults; do \
		TEST_SOURCE='$(abs_srcdir)' TEST_BUILD='$(abs_builddir)' sh '$(abs_srcdir)/test/comm/'$$script.sh; done
.PHONY: check-faults

# Every test program, without the emulated GPU, and a few short scripts: under 2 minutes on 2 cores.
check-fast:
	TEST_FAST=1 $(MAKE) $(AM_MAKEFLAGS) -O -j 2 check check_DATA='$(nvml_libraries)' TESTS='$(test_programs) $(fast_test_scripts)'
.PHONY: check-fast

# For test/run.
check-data: $(check_DATA)
check-gpu: $(emulated_gpu)
run-test:
	@srcdir='$(srcdir)'; export srcdir; f='$(TEST_COMMAND)'; $(AM_TESTS_ENVIRONMENT) $(TEST_COMMAND)
.PHONY: check-data check-gpu run-test

# Also the tests that take long or need much memory.
check-long:
	TEST_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check
.PHONY: check-long

EXTRA_DIST += \
	$(test_files) \
	test/vectors
