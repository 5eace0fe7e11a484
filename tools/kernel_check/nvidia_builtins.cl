/* SPDX-License-Identifier: MIT
 * OpenCL C's built-in functions for libnvvm, as far as kernels in cl/ call them: NVIDIA's driver has its own, which are in
 * no package. Signatures: OpenCL C 1.2, 6.12. Work-items and barriers are the instructions that the driver's functions
 * come down to, mathematics is NVIDIA's libdevice. Compiled without clang's header (-cl-no-stdinc). */
#define BUILTIN __attribute__((overloadable, always_inline))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
#define VECTORS(T)                                                                            \
  typedef T T##2 __attribute__((ext_vector_type(2))); typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4))); typedef T T##8 __attribute__((ext_vector_type(8))); \
  typedef T T##16 __attribute__((ext_vector_type(16)));
VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int) VECTORS(uint) VECTORS(long) VECTORS(ulong) VECTORS(float)

/* 6.12.1 work-items */
#define BY_AXIS(name, x, y, z, other) \
  size_t BUILTIN name(uint axis) { return axis == 0 ? (x) : axis == 1 ? (y) : axis == 2 ? (z) : (other); }
#define REGISTER(name, axis) (size_t)(uint)__nvvm_read_ptx_sreg_##name##_##axis()
BY_AXIS(get_local_id, REGISTER(tid, x), REGISTER(tid, y), REGISTER(tid, z), 0)
BY_AXIS(get_local_size, REGISTER(ntid, x), REGISTER(ntid, y), REGISTER(ntid, z), 1)
BY_AXIS(get_group_id, REGISTER(ctaid, x), REGISTER(ctaid, y), REGISTER(ctaid, z), 0)
BY_AXIS(get_num_groups, REGISTER(nctaid, x), REGISTER(nctaid, y), REGISTER(nctaid, z), 1)
size_t BUILTIN get_global_id(uint axis) { return get_group_id(axis) * get_local_size(axis) + get_local_id(axis); }
size_t BUILTIN get_global_size(uint axis) { return get_num_groups(axis) * get_local_size(axis); }

/* 6.12.8 */
void BUILTIN __attribute__((convergent)) barrier(uint flags) { __syncthreads(); }
void BUILTIN mem_fence(uint flags) { __nvvm_membar_cta(); }

/* 6.12.2 and 6.12.4: NVIDIA's libdevice, one component after the other */
float __nv_expf(float);
float __nv_logf(float);
float __nv_fmaxf(float, float);
float __nv_fminf(float, float);
float __nv_fmaf(float, float, float);
float __nv_sqrtf(float);
#define ONE(name, f)                                                                        \
  float BUILTIN name(float v) { return f(v); }                                              \
  float2 BUILTIN name(float2 v) { return (float2)(f(v.x), f(v.y)); }                        \
  float4 BUILTIN name(float4 v) { return (float4)(f(v.x), f(v.y), f(v.z), f(v.w)); }        \
  float8 BUILTIN name(float8 v) { return (float8)(name(v.lo), name(v.hi)); }                \
  float16 BUILTIN name(float16 v) { return (float16)(name(v.lo), name(v.hi)); }
ONE(exp, __nv_expf)
ONE(log, __nv_logf)
ONE(sqrt, __nv_sqrtf)
#define TWO(name, f)                                                                                               \
  float BUILTIN name(float a, float b) { return f(a, b); }                                                         \
  float2 BUILTIN name(float2 a, float2 b) { return (float2)(f(a.x, b.x), f(a.y, b.y)); }                           \
  float4 BUILTIN name(float4 a, float4 b) { return (float4)(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)); } \
  float8 BUILTIN name(float8 a, float8 b) { return (float8)(name(a.lo, b.lo), name(a.hi, b.hi)); }                 \
  float16 BUILTIN name(float16 a, float16 b) { return (float16)(name(a.lo, b.lo), name(a.hi, b.hi)); }             \
  float2 BUILTIN name(float2 a, float b) { return name(a, (float2)b); }                                            \
  float4 BUILTIN name(float4 a, float b) { return name(a, (float4)b); }                                            \
  float8 BUILTIN name(float8 a, float b) { return name(a, (float8)b); }                                            \
  float16 BUILTIN name(float16 a, float b) { return name(a, (float16)b); }
TWO(fmax, __nv_fmaxf)
TWO(fmin, __nv_fminf)
float BUILTIN fma(float a, float b, float c) { return __nv_fmaf(a, b, c); }
float2 BUILTIN fma(float2 a, float2 b, float2 c) { return (float2)(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y)); }
float4 BUILTIN fma(float4 a, float4 b, float4 c) { return (float4)(fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)); }
float8 BUILTIN fma(float8 a, float8 b, float8 c) { return (float8)(fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)); }
float16 BUILTIN fma(float16 a, float16 b, float16 c) { return (float16)(fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)); }

/* 6.12.3, 6.12.4, 6.12.6 */
#define ORDER(T)                                                  \
  T BUILTIN min(T a, T b) { return b < a ? b : a; }               \
  T BUILTIN max(T a, T b) { return a < b ? b : a; }               \
  T BUILTIN clamp(T v, T low, T high) { return min(max(v, low), high); }
#define ORDER_WITH(T, S)                                 \
  T BUILTIN min(T a, S b) { return min(a, (T)b); }       \
  T BUILTIN max(T a, S b) { return max(a, (T)b); }       \
  T BUILTIN clamp(T v, S low, S high) { return clamp(v, (T)low, (T)high); }
#define ORDERS(T) ORDER(T) ORDER(T##2) ORDER(T##4) ORDER(T##8) ORDER(T##16) ORDER_WITH(T##2, T) ORDER_WITH(T##4, T) ORDER_WITH(T##8, T) ORDER_WITH(T##16, T)
ORDERS(char) ORDERS(uchar) ORDERS(short) ORDERS(ushort) ORDERS(int) ORDERS(uint) ORDERS(long) ORDERS(ulong) ORDERS(float)

/* a scalar is chosen by its condition's value, a vector's components by the highest bits */
#define CHOOSE(T, I)                                                            \
  T BUILTIN select(T a, T b, I c) { return c ? b : a; }                         \
  T##2 BUILTIN select(T##2 a, T##2 b, I##2 c) { return c < (I##2)0 ? b : a; }   \
  T##4 BUILTIN select(T##4 a, T##4 b, I##4 c) { return c < (I##4)0 ? b : a; }   \
  T##8 BUILTIN select(T##8 a, T##8 b, I##8 c) { return c < (I##8)0 ? b : a; }   \
  T##16 BUILTIN select(T##16 a, T##16 b, I##16 c) { return c < (I##16)0 ? b : a; }
CHOOSE(float, int) CHOOSE(int, int) CHOOSE(uint, int) CHOOSE(long, long) CHOOSE(ulong, long) CHOOSE(char, char) CHOOSE(uchar, char)
int BUILTIN any(int v) { return v < 0; }
int BUILTIN any(int2 v) { return (v.x | v.y) < 0; }
int BUILTIN any(int4 v) { return (v.x | v.y | v.z | v.w) < 0; }
int BUILTIN any(int8 v) { return any(v.lo | v.hi); }
int BUILTIN any(int16 v) { return any(v.lo | v.hi); }
int BUILTIN isfinite(float v) { return (__builtin_astype(v, uint) & 0x7f800000u) != 0x7f800000u; }
int BUILTIN isnan(float v) { return v != v; }
uint BUILTIN mul_hi(uint a, uint b) { return __nvvm_mulhi_ui(a, b); }
int BUILTIN mul_hi(int a, int b) { return __nvvm_mulhi_i(a, b); }
float BUILTIN fabs(float v) { return __builtin_astype(__builtin_astype(v, uint) & 0x7fffffffu, float); }

/* 6.2.3, 6.12.7 */
#define CONVERT1(T, S, w) T##w BUILTIN convert_##T##w(S##w v) { return __builtin_convertvector(v, T##w); }
#define CONVERT(T, S) CONVERT1(T, S, 2) CONVERT1(T, S, 4) CONVERT1(T, S, 8) CONVERT1(T, S, 16)
#define FROM(S) CONVERT(uchar, S) CONVERT(ushort, S) CONVERT(int, S) CONVERT(uint, S) CONVERT(float, S)
FROM(uchar) FROM(ushort) FROM(int) FROM(uint) FROM(float)
#define MEMORY_OF(T, space, n)                                                                                   \
  T##n BUILTIN vload##n(size_t i, const space T *p) {                                                            \
    T##n v;                                                                                                      \
    for (int k = 0; k < n; k++) v[k] = p[i * n + k];                                                             \
    return v;                                                                                                    \
  }
#define STORE_OF(T, space, n)                                                                                    \
  void BUILTIN vstore##n(T##n v, size_t i, space T *p) {                                                         \
    for (int k = 0; k < n; k++) p[i * n + k] = v[k];                                                             \
  }
#define MEMORY(T)                                                                                                \
  MEMORY_OF(T, __global, 4) MEMORY_OF(T, __local, 4) MEMORY_OF(T, __global, 16) STORE_OF(T, __global, 4) STORE_OF(T, __local, 4) \
  STORE_OF(T, __global, 16)
MEMORY(float) MEMORY(int) MEMORY(uint) MEMORY(uchar) MEMORY(ushort)
#define FETCH(T) void BUILTIN prefetch(const __global T *p, size_t n) {}
FETCH(float) FETCH(float4) FETCH(float16) FETCH(int) FETCH(uint) FETCH(uchar) FETCH(ushort)
