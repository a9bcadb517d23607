dnl SPDX-License-Identifier: BSD-3-Clause
# VITTRAIN_EMULATION: a C++ compiler for the emulated GPU of the tests. It must be GNU's, because the emulation
# implements the callbacks of its -fsanitize=thread; clang's differ.
# VITTRAIN_CUDA: --with-cuda=auto|yes|no|PREFIX and --with-cuda-arch=LIST: the module for GPUs.

AC_DEFUN([VITTRAIN_EMULATION], [
  AC_LANG_PUSH([C++])
  AC_MSG_CHECKING([whether $CXX is GNU C++17])
  vittrain_save_CXXFLAGS=$CXXFLAGS
  CXXFLAGS="-std=c++17 -fPIC $SANITIZER_CFLAGS"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <functional>
#ifdef __clang__
#error "not GNU's"
#endif]])],
    [vittrain_emulation=yes], [vittrain_emulation=no])
  CXXFLAGS=$vittrain_save_CXXFLAGS
  AC_MSG_RESULT([$vittrain_emulation])
  AC_LANG_POP([C++])
  AM_CONDITIONAL([EMULATION], [test "$vittrain_emulation" = yes])
  AM_CONDITIONAL([EMULATION_CHECKS], [test -z "$SANITIZER_CFLAGS"])
])

# VITTRAIN_CUDA_LIBRARY(HEADER, LIBRARY, PACKAGE): a library in the folders of the toolkit or the system.
AC_DEFUN([VITTRAIN_CUDA_LIBRARY], [
  AS_IF([test "$vittrain_cuda" = yes], [
    AC_MSG_CHECKING([for $2])
    cat >conftest.cu <<EOF
#include <$1>
#if defined CUDNN_VERSION && CUDNN_VERSION < 90800
#error cuDNN is too old
#endif
int main(void) { return 0; }
EOF
    AS_IF([$NVCC -o conftest$EXEEXT conftest.cu -L$CUDA_LIBRARY_DIR -l$2 >&AS_MESSAGE_LOG_FD 2>&1],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       vittrain_cuda=no
       vittrain_cuda_summary="no ($2 is missing or too old: $3)"])
    rm -f conftest.cu conftest$EXEEXT
  ])
])

# Machine code for each of these architectures that nvcc supports, and PTX of the newest one for later GPUs. wgmma exists only
# in sm_90a, whose machine code runs on GPUs of compute capability 9.0 and no others.
AC_DEFUN([VITTRAIN_CUDA_ARCHITECTURES], [
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities to build for, with commas
       (default 75,80,86,89,90,100, as far as nvcc knows them)])],
    [vittrain_wanted_arch=$withval], [vittrain_wanted_arch=75,80,86,89,90,100])
  vittrain_known_arch=`$NVCC --list-gpu-arch 2>/dev/null | tr '\n' ' '`
  NVCC_ARCH=; vittrain_arch_list=; vittrain_least_arch=
  for vittrain_arch in `echo $vittrain_wanted_arch | tr ',' ' '`; do
    AS_CASE([" $vittrain_known_arch "],
      [*" compute_$vittrain_arch "*], [
        NVCC_ARCH="$NVCC_ARCH -gencode arch=compute_$vittrain_arch,code=sm_$vittrain_arch"
        AS_IF([test -z "$vittrain_least_arch"], [vittrain_least_arch=$vittrain_arch])
        vittrain_last_arch=$vittrain_arch
        vittrain_arch_list="$vittrain_arch_list sm_$vittrain_arch"],
      [AS_IF([test -n "$with_cuda_arch"],
        [AC_MSG_ERROR([--with-cuda-arch=$vittrain_wanted_arch: $NVCC knows $vittrain_known_arch])])])
  done
  NVCC_ARCH="$NVCC_ARCH -gencode arch=compute_$vittrain_last_arch,code=compute_$vittrain_last_arch"
  NVCC_ARCH="$NVCC_ARCH -DCUDA_LEAST_CAPABILITY=$vittrain_least_arch"
  AS_CASE(["$vittrain_arch_list "],
    [*" sm_90 "*], [NVCC_ARCH_WGMMA="-gencode arch=compute_90a,code=sm_90a -DWITH_SM_90A"],
    [NVCC_ARCH_WGMMA=$NVCC_ARCH])
])

AC_DEFUN([VITTRAIN_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=auto|yes|no|PREFIX], [the module for NVIDIA GPUs, with the toolkit
       in PREFIX (default auto: when there is one)])],
    [], [with_cuda=auto])
  AC_ARG_WITH([nvtx],
    [AS_HELP_STRING([--with-nvtx], [ranges around units and phases on the timeline of Nsight])],
    [], [with_nvtx=no])
  vittrain_cuda=no vittrain_cuda_summary=no
  AS_CASE([$with_cuda], [/*], [vittrain_cuda_path=$with_cuda/bin],
    [yes|auto|no], [vittrain_cuda_path=$PATH:/usr/local/cuda/bin],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: must be auto, yes, no or the toolkit's folder])])
  AS_IF([test "$with_cuda" != no], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$vittrain_cuda_path])
    AS_IF([test -n "$NVCC"], [vittrain_cuda=yes],
      [vittrain_cuda_summary="no (no nvcc: put it on PATH, or --with-cuda=PREFIX)"])])
  AS_IF([test "$vittrain_cuda" = yes], [
    vittrain_cuda_prefix=`dirname "$NVCC"`
    vittrain_cuda_prefix=`dirname "$vittrain_cuda_prefix"`
    CUDA_LIBRARY_DIR=$vittrain_cuda_prefix/lib64
    AS_IF([test -d "$CUDA_LIBRARY_DIR"], [], [CUDA_LIBRARY_DIR=$vittrain_cuda_prefix/lib])
    VITTRAIN_CUDA_ARCHITECTURES
  ])
  VITTRAIN_CUDA_LIBRARY([cublasLt.h], [cublasLt], [cuBLAS of the CUDA toolkit])
  dnl 9.8 introduced device properties (convolution_engine.h).
  VITTRAIN_CUDA_LIBRARY([cudnn_graph.h], [cudnn], [cuDNN 9.8 or newer: libcudnn9-dev-cuda-13 or -12])
  VITTRAIN_CUDA_LIBRARY([nccl.h], [nccl], [libnccl-dev])
  AS_IF([test "$vittrain_cuda" = yes],
    [vittrain_cuda_summary="yes, by $NVCC, for$vittrain_arch_list"])
  AS_CASE([$with_cuda:$vittrain_cuda], [auto:no|no:no|*:yes], [],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: $vittrain_cuda_summary])])
  AS_IF([test "$with_nvtx" != no], [NVCC_ARCH="$NVCC_ARCH -DWITH_NVTX"])
  AC_SUBST([NVCC_ARCH])
  AC_SUBST([NVCC_ARCH_WGMMA])
  AC_SUBST([CUDA_LIBRARY_DIR])
  AM_CONDITIONAL([CUDA], [test "$vittrain_cuda" = yes])
])
