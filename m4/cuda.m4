# VITTRAIN_CUDA: --with-cuda=auto|yes|no. This version has no module for GPUs; whether a toolkit is
# there is said in the summary.

AC_DEFUN([VITTRAIN_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=auto|yes|no], [the module for NVIDIA GPUs (default auto)])],
    [], [with_cuda=auto])
  AS_CASE([$with_cuda],
    [yes], [AC_MSG_ERROR([--with-cuda=yes: the GPU module is not part of vittrain $PACKAGE_VERSION; leave the option out])],
    [no], [vittrain_cuda_summary=no],
    [auto], [
      AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])
      vittrain_cuda_summary="no (the GPU module is not part of this version)"
      AS_IF([test -n "$NVCC"],
        [vittrain_cuda_summary="no ($NVCC found, but the GPU module is not part of this version)"])],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: must be auto, yes or no])])
])
