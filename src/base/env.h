/* SPDX-License-Identifier: MIT
 * Environment variables: each one that the library and the program read is a row here, and only src/base/env.c reads
 * them (the test `environment` searches for others, and compares doc/developers/environment.md with these rows).
 *
 * X(symbol, name, audience, loads, meaning). USER: changes the program's behaviour for its user. SYSTEM: belongs to the
 * system or a driver. KNOB: for tests and experiments. LOADS: selects code, a file with code or compiler options; a
 * program with more rights than its caller ignores it (secure_getenv). */
#ifndef CVY_BASE_ENV_H
#define CVY_BASE_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

#define CVY_ENV_MAP(X)                                                                                                \
  X(DATA, "CONVOY_DATA", USER, PLAIN, "folder of fashion-mnist, searched after --data-dir")                           \
  X(MEMORY_LIMIT_MIB, "CVY_MEMORY_LIMIT_MIB", USER, PLAIN, "limit of every device's memory in MiB; one whole number") \
  X(NO_CACHE, "CVY_NO_CACHE", USER, PLAIN, "1: compiled kernels are neither stored nor loaded")                       \
  X(NO_TUNE, "CVY_NO_TUNE", USER, PLAIN, "1: results of convoy tune are neither stored nor loaded")                   \
  X(CLBLAST, "CVY_CLBLAST", USER, LOADS, "file of CLBlast; none: without it")                                         \
  X(CLFFT, "CVY_CLFFT", USER, LOADS, "file of clFFT; none: without it")                                               \
  X(MPI, "CVY_MPI", USER, LOADS, "file of the MPI plug-in; none: without it")                                         \
  X(XDG_CACHE_HOME, "XDG_CACHE_HOME", SYSTEM, LOADS, "folder of caches, with convoy/ for kernels and tuned choices")  \
  X(HOME, "HOME", SYSTEM, LOADS, "folder of .cache without XDG_CACHE_HOME")                                           \
  X(POCL_CACHE_DIR, "POCL_CACHE_DIR", SYSTEM, LOADS,                                                                  \
    "PoCL's cache; not set and the usual folder unusable: a folder in /tmp")                                          \
  X(POCL_DEVICES, "POCL_DEVICES", SYSTEM, PLAIN, "the devices that PoCL offers, for messages")                        \
  X(POCL_KERNEL_CACHE, "POCL_KERNEL_CACHE", SYSTEM, PLAIN,                                                            \
    "0: PoCL stores no kernels; convoy then compiles none ahead")                                                     \
  X(CUDA_CACHE_DISABLE, "CUDA_CACHE_DISABLE", SYSTEM, PLAIN,                                                          \
    "1: NVIDIA's driver stores no machine code; convoy then compiles none ahead")                                     \
  X(CUDA_CACHE_PATH, "CUDA_CACHE_PATH", SYSTEM, LOADS, "NVIDIA's cache of machine code, for messages")                \
  X(POCL_WORK_GROUP_METHOD, "POCL_WORK_GROUP_METHOD", SYSTEM, PLAIN,                                                  \
    "PoCL's method of running work-items; not set with PoCL 7: cbs")                                                  \
  X(OCL_ICD_VENDORS, "OCL_ICD_VENDORS", SYSTEM, LOADS,                                                                \
    "folder or file of OpenCL drivers, instead of /etc/OpenCL/vendors")                                               \
  X(TERM, "TERM", SYSTEM, PLAIN, "dumb, or not set: no escape sequences")                                             \
  X(PATH, "PATH", SYSTEM, PLAIN, "whether commands in messages need the program's path; folder of PoCL's linker")     \
  X(OMPI_COMM_WORLD_RANK, "OMPI_COMM_WORLD_RANK", SYSTEM, PLAIN, "rank of this process, from mpirun of Open MPI")     \
  X(OMPI_COMM_WORLD_SIZE, "OMPI_COMM_WORLD_SIZE", SYSTEM, PLAIN,                                                      \
    "number of processes that mpirun of Open MPI started")                                                            \
  X(PMI_RANK, "PMI_RANK", SYSTEM, PLAIN, "rank of this process, from mpiexec of MPICH or srun --mpi=pmi2")            \
  X(PMI_SIZE, "PMI_SIZE", SYSTEM, PLAIN, "number of processes that these started")                                    \
  X(PMIX_RANK, "PMIX_RANK", SYSTEM, PLAIN, "rank of this process, from srun --mpi=pmix")                              \
  X(SLURM_PROCID, "SLURM_PROCID", SYSTEM, PLAIN, "rank of this process, from srun without MPI")                       \
  X(SLURM_STEP_NUM_TASKS, "SLURM_STEP_NUM_TASKS", SYSTEM, PLAIN, "number of processes that srun started")             \
  X(CL_DIR, "CVY_CL_DIR", KNOB, LOADS, "folder of kernels that replace the built-in ones")                            \
  X(BUILD_OPTIONS, "CVY_BUILD_OPTIONS", KNOB, LOADS, "additional options for the OpenCL compiler")                    \
  X(FORCE_SHAPE, "CVY_FORCE_SHAPE", KNOB, PLAIN, "cpu or simt: the shape of kernels on every device")                 \
  X(FORCE_MATRIX, "CVY_FORCE_MATRIX", KNOB, PLAIN,                                                                    \
    "nvidia or amd: assume matrix units; with -emulated: emulate them in plain C")                                    \
  X(FORCE_STAGING, "CVY_FORCE_STAGING", KNOB, PLAIN, "1: transfers as on a card with its own memory")                 \
  X(FORCE_PLAN, "CVY_FORCE_PLAN", KNOB, PLAIN,                                                                        \
    "h100 or another card of convoy bench plan: plan SIMT-shaped kernels for it")                                     \
  X(COMPILE_AHEAD, "CVY_COMPILE_AHEAD", KNOB, PLAIN,                                                                  \
    "none, launched or built: method of compiling in other processes, on every driver")                               \
  X(BAD_DEFAULTS, "CVY_BAD_DEFAULTS", KNOB, PLAIN,                                                                    \
    "1: the shipped default is the algorithm with the highest expected cost")

#define CVY_ENV_ENUM(symbol, name, whom, loads, meaning) CVY_ENV_##symbol,
typedef enum cvy_env { CVY_ENV_MAP(CVY_ENV_ENUM) CVY_ENV_COUNT } cvy_env;
#undef CVY_ENV_ENUM

/* NULL if it is not set. Borrowed, until the environment changes. For the few variables of other programs for which ""
 * is a value. */
const char *cvy_env_given(cvy_env which);
/* NULL if it is not set or empty. Borrowed, until the environment changes. */
const char *cvy_env_text(cvy_env which);
/* The environment ("NAME=VALUE", ended by NULL) without this variable; free with cvy_free. The texts are
 * borrowed, until the environment changes. NULL when out of memory. */
char **cvy_env_without(const char *name);
/* The program of this name that a shell would run: the first executable file in the folders of PATH; "" is the current
 * folder. False: none. */
bool cvy_env_find_program(const char *name, char *path, size_t bytes);
/* A switch: 1 is on, 0 or nothing is off. Anything else: on, with one warning per process. */
bool cvy_env_on(cvy_env which);
/* *out is unchanged if the variable is not set. CVY_E_ARGUMENT: not a whole number from min to max. */
cvy_status cvy_env_int(cvy_env which, int64_t min, int64_t max, int64_t *out);

#endif
