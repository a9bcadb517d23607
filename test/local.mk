# SPDX-License-Identifier: BSD-3-Clause
# tests: programs with TAP output (cmocka) and scripts *.sh with TAP output.
# Add a program's name here (its source is test/NAME.c), and to test/ranks if it is for several ranks.
LDADD = test/libsupport.a $(program_libraries) $(CMOCKA_LIBS)
test_libsupport_a_SOURCES = \
	test/comm_fixture.c \
	test/comm_fixture.h \
	test/markup.c \
	test/markup.h \
	test/model_fixture.c \
	test/model_fixture.h \
	test/device_test.c \
	test/device_test.h \
	test/skip.h \
	test/image_vectors.c \
	test/image_vectors.h \
	test/temporary.c \
	test/temporary.h \
	test/vector_file.c \
	test/vector_file.h \
	test/vit_fixture.c \
	test/vit_fixture.h \
	test/web_server.c \
	test/web_server.h

test_programs = \
	test/test_activations \
	test/test_control \
	test/test_algorithms \
	test/test_arena \
	test/test_attention \
	test/test_available \
	test/test_augment \
	test/test_batch_norm \
	test/test_bench \
	test/test_chart \
	test/test_checkpoint \
	test/test_checkpoint_damage \
	test/test_checkpoint_faults \
	test/test_checkpoint_writer \
	test/test_choices \
	test/test_comm \
	test/test_convnet_device \
	test/test_convolution \
	test/test_crc32c \
	test/test_crop \
	test/test_data_root \
	test/test_dataset \
	test/test_directory \
	test/test_doctor \
	test/test_download \
	test/test_dropout \
	test/test_elements \
	test/test_emulation \
	test/test_epochs \
	test/test_error \
	test/test_export \
	test/test_flat \
	test/test_flat_partial \
	test/test_step_prediction \
	test/test_glu \
	test/test_grains \
	test/test_grains_model \
	test/test_hardware \
	test/test_hdf5_reader \
	test/test_hostile_files \
	test/test_html \
	test/test_image \
	test/test_image_file \
	test/test_image_folder \
	test/test_image_orientation \
	test/test_launcher \
	test/test_linear \
	test/test_linear_relu \
	test/test_output_file \
	test/test_overwrite \
	test/test_loader \
	test/test_log \
	test/test_logbook \
	test/test_loss \
	test/test_loss_scale \
	test/test_max_pool \
	test/test_metrics \
	test/test_mix \
	test/test_model \
	test/test_model_metadata \
	test/test_model_random \
	test/test_nccl \
	test/test_monitor \
	test/test_norm \
	test/test_nvml \
	test/test_optimizer \
	test/test_options \
	test/test_options_fuzz \
	test/test_packed \
	test/test_step_io \
	test/test_plan \
	test/test_policy \
	test/test_prediction \
	test/test_product \
	test/test_product_choice \
	test/test_product_tiles \
	test/test_random \
	test/test_recipe \
	test/test_range_test \
	test/test_record \
	test/test_results \
	test/test_run_folder \
	test/test_run_log \
	test/test_safetensors \
	test/test_safetensors_fuzz \
	test/test_sampler \
	test/test_rotary \
	test/test_scale \
	test/test_schedule \
	test/test_sensors \
	test/test_status \
	test/test_step \
	test/test_sweep \
	test/test_straggler \
	test/test_tensorboard \
	test/test_text \
	test/test_tree \
	test/test_squared_error \
	test/test_tiles \
	test/test_tokens \
	test/test_transport \
	test/test_vit_device \
	test/test_update \
	test/test_webdataset

# MPI's functions that it replaces must not get into other tests.
test_test_transport_SOURCES = test/test_transport.c test/fake_network.c test/fake_network.h

# Of the module for GPUs.
test_test_monitor_SOURCES = test/test_monitor.c cuda/nvml.c cuda/nvml.h
test_test_nvml_SOURCES = test/test_nvml.c cuda/nvml.c cuda/nvml.h

# What stands in for the driver's library, a present one and one as it was years ago.
nvml_libraries = \
	test/nvml/libnvidia-ml.so.1 \
	test/nvml_old/libnvidia-ml.so.1
test_data = $(nvml_libraries)
CLEANFILES += $(nvml_libraries)
test/nvml/libnvidia-ml.so.1: $(srcdir)/test/nvml_stand_in.c
	$(AM_V_CCLD)$(MKDIR_P) test/nvml && \
	$(CC) $(CFLAGS) -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 \
		$(srcdir)/test/nvml_stand_in.c -o $@
test/nvml_old/libnvidia-ml.so.1: $(srcdir)/test/nvml_stand_in.c
	$(AM_V_CCLD)$(MKDIR_P) test/nvml_old && \
	$(CC) $(CFLAGS) -DOLD -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 \
		$(srcdir)/test/nvml_stand_in.c -o $@

test_data += test/node_stand_in.so
CLEANFILES += test/node_stand_in.so
test/node_stand_in.so: $(srcdir)/test/node_stand_in.c
	$(AM_V_CCLD)$(CC) $(CFLAGS) -shared -fPIC $(srcdir)/test/node_stand_in.c -o $@

# What scripts need: it looks at pictures.
EXTRA_PROGRAMS = test/look_at_picture
test_data += test/look_at_picture$(EXEEXT)

# The program with counters, for test_start.sh.
EXTRA_PROGRAMS += test/start_count
test_start_count_SOURCES = src/main.c test/start_count.c
test_start_count_LDADD = $(program_libraries)
test_start_count_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=progress_start -Wl,--wrap=transport_run \
	-Wl,--wrap=heartbeat_turn -Wl,--wrap=status_set_phase -Wl,--wrap=gethostname
test_data += test/start_count$(EXEEXT)

# Programs of the benchmarks: they must build.
test_data += \
	benchmarks/bench_checkpoint$(EXEEXT) \
	benchmarks/bench_input$(EXEEXT) \
	benchmarks/bench_packed$(EXEEXT)

test_scripts = \
	test/test_command_line.sh \
	test/test_failing_writes.sh \
	test/test_fetch.sh \
	test/test_gpu_errors.sh \
	test/test_monitor_runs.sh \
	test/test_plan_runs.sh
# Many runs of the whole program, of which sanitizers would make minutes each.
long_test_scripts = \
	test/test_background.sh \
	test/test_bench_scripts.sh \
	test/test_book.sh \
	test/test_build.sh \
	test/test_check_grains.sh \
	test/test_checkpoint_kill.sh \
	test/test_comm_death.sh \
	test/test_commands.sh \
	test/test_convert.sh \
	test/test_convnets.sh \
	test/test_cudnn_engines.sh \
	test/test_dependencies.sh \
	test/test_doctor_runs.sh \
	test/test_ends.sh \
	test/test_find_lr.sh \
	test/test_fit.sh \
	test/test_fp16.sh \
	test/test_gpu_algorithms.sh \
	test/test_gpu_emulated.sh \
	test/test_gpu_page.sh \
	test/test_gpu_run.sh \
	test/test_hostile_runs.sh \
	test/test_images.sh \
	test/test_launch.sh \
	test/test_launch_nodes.sh \
	test/test_layouts.sh \
	test/test_machine_code.sh \
	test/test_mix_runs.sh \
	test/test_muon.sh \
	test/test_optimizers.sh \
	test/test_nccl_failures.sh \
	test/test_node_death.sh \
	test/test_nodes.sh \
	test/test_packed_runs.sh \
	test/test_peak.sh \
	test/test_predict_files.sh \
	test/test_recompute.sh \
	test/test_report.sh \
	test/test_resume.sh \
	test/test_run_pages.sh \
	test/test_shared_memory.sh \
	test/test_store.sh \
	test/test_slurm.sh \
	test/test_source.sh \
	test/test_stall.sh \
	test/test_start.sh \
	test/test_stop.sh \
	test/test_strategies.sh \
	test/test_export_runs.sh \
	test/test_sweep_runs.sh \
	test/test_trajectory.sh \
	test/test_exact.sh \
	test/test_verify.sh \
	test/test_webdataset_runs.sh

if CMOCKA
check_LIBRARIES = test/libsupport.a
check_PROGRAMS = $(test_programs)
check_DATA = $(test_data)
TESTS = $(check_PROGRAMS) $(test_scripts)
if !SANITIZERS
TESTS += $(long_test_scripts)
endif
endif
TEST_EXTENSIONS = .sh
# --comments: the explanation of a failure is printed with its result, also if only that output is kept.
tap_driver = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER = $(tap_driver) --merge --comments
LOG_COMPILER = $(SHELL) $(srcdir)/test/run_test.sh
SH_LOG_DRIVER = $(tap_driver) --merge --comments
SH_LOG_COMPILER = $(SHELL)
# Each test has its own folder for temporary files. In a common one, runs of several tests disturb each other: Open MPI
# removes its session folder when a run ends, also while another run starts.
AM_TESTS_ENVIRONMENT = \
	TMPDIR=`mktemp -d`; export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT; \
	MPIRUN='$(MPIRUN) $(MPIRUN_FLAGS)' TEST_MPI=$(MPI_NAME); export MPIRUN TEST_MPI; \
	TEST_SOURCE='$(abs_top_srcdir)'; export TEST_SOURCE; \
	TEST_BUILD='$(abs_top_builddir)'; export TEST_BUILD; \
	. $(srcdir)/test/environment.sh;

# Two tests whose names differ in their endings alone would have one log, and only one of them would run.
check-local:
if !CMOCKA
	@echo "make check: cmocka is missing: install it (Debian, Ubuntu: libcmocka-dev), then run configure again" >&2; exit 1
endif
	@twice=`for test in $(TESTS); do echo "$$test"; done | $(SED) 's/\.sh$$//' | sort | uniq -d`; \
	if test -n "$$twice"; then echo "ERROR: tests of the same name: $$twice" >&2; exit 1; fi

# What clusters do to runs, all of it (half an hour; root): a table goes to FAULTS_CSV.
check-faults: vittrain
	cd '$(abs_builddir)' && TEST_SOURCE='$(abs_srcdir)' TEST_BUILD='$(abs_builddir)' sh '$(abs_srcdir)/test/check_faults.sh'
.PHONY: check-faults

# Every test program, without the emulated GPU, and a few short scripts: under 2 minutes on 2 cores.
fast_scripts = test/test_command_line.sh test/test_source.sh test/test_trajectory.sh
check-fast:
	TEST_FAST=1 $(MAKE) $(AM_MAKEFLAGS) -O -j 2 check check_DATA='$(nvml_libraries)' TESTS='$(check_PROGRAMS) $(fast_scripts)'
.PHONY: check-fast

# For test/run.
check-data: $(check_DATA)
run-test:
	@$(AM_TESTS_ENVIRONMENT) $(TEST_COMMAND)
.PHONY: check-data run-test

# Also the tests that take long or need much memory.
check-long:
	TEST_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check
.PHONY: check-long

EXTRA_DIST += \
	$(long_test_scripts) \
	$(test_scripts) \
	test/book_blocks.awk \
	test/book_page.sh \
	test/book_setup.sh \
	test/check_augmented.py \
	test/check_colours.py \
	test/check_convnets.py \
	test/check_h5py.py \
	test/check_evaluation.py \
	test/check_images.py \
	test/check_packed.py \
	test/check_predict.py \
	test/check_pretrained.py \
	test/check_safetensors.py \
	test/check_tensorboard.py \
	test/check_torch_split.py \
	test/check_trackers.py \
	test/check_wandb.py \
	test/check_webdataset.py \
	test/check_weights.py \
	test/check_with_python.sh \
	test/environment.sh \
	test/http_server.py \
	test/s3_endpoint.py \
	test/lsan.supp \
	test/arm64.sh \
	test/matrix.sh \
	test/systems.sh \
	test/check_faults.sh \
	test/plant_nan.py \
	test/start_counts.awk \
	test/cluster.sh \
	test/node_stand_in.c \
	test/nvml_stand_in.c \
	test/program.sh \
	test/make_sample.py \
	test/devices \
	test/ranks \
	test/run \
	test/run_test.sh \
	test/tsan.supp \
	test/vectors
