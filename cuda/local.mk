# SPDX-License-Identifier: BSD-3-Clause
# the module for GPUs: cuda/*.cu by nvcc. Those that call a library have a host's version in
# test/emulation/.
cuda_cppflags = -I$(CUDA_LIBRARY_DIR)/../include
nvcc_flags = -std=c++17 -O3 -lineinfo -Xcompiler -fPIC,-Wall,-Wextra,-Wno-missing-field-initializers -I$(srcdir)/cuda \
	-I$(srcdir)/src $(RANDOM123_CFLAGS) $(nvcc_arch)
nvcc_arch = $(NVCC_ARCH)
cuda/attention_wgmma.cuda.o: nvcc_arch = $(NVCC_ARCH_WGMMA)
cuda_objects = $(cuda_sources:.cu=.cuda.o) $(cuda_library_sources:.cu=.cuda.o)
SUFFIXES = .cu .cuda.o
.cu.cuda.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) $(nvcc_flags) -MMD -MP -MF $@.d -c -o $@ $<
cuda/nvml.module.o: $(srcdir)/cuda/nvml.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CC)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -fPIC \
		-MMD -MP -MF $@.d -c -o $@ $(srcdir)/cuda/nvml.c
# In C, since a test that is no CUDA program links them, too.
engine_sources = cuda/convolution_engine.c
engine_objects = $(engine_sources:.c=.module.o)
$(engine_objects): %.module.o: $(srcdir)/%.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CC)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(cuda_cppflags) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) \
		-fPIC -MMD -MP -MF $@.d -c -o $@ $<
module_objects = $(cuda_objects) $(engine_objects) cuda/nvml.module.o
vittrain-cuda.so: $(module_objects)
	$(AM_V_GEN)$(NVCC) -shared -o $@ $(module_objects) -L$(CUDA_LIBRARY_DIR) -lcublasLt -lcudnn -lnccl
if CUDA
moduledir = $(pkglibdir)
module_DATA = vittrain-cuda.so
endif
# For benchmarks/bundle.sh.
nvcc-flags:
	@echo "$(nvcc_flags)"
cuda-library-dir:
	@echo "$(CUDA_LIBRARY_DIR)"
bundle-link:
	$(CCLD) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -o $(BUNDLE_OUTPUT) $(BUNDLE_OBJECTS) $(LDADD) $(LIBS)
.PHONY: nvcc-flags cuda-library-dir bundle-link
CLEANFILES += vittrain-cuda.so $(module_objects) $(module_objects:.o=.o.d)

# The compilers write which headers each of these objects includes.
-include $(module_objects:.o=.o.d)

EXTRA_DIST += \
	$(cuda_headers) \
	$(cuda_library_sources) \
	$(engine_sources) \
	$(cuda_sources) \
	cuda/README.md
