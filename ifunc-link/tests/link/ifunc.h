/* Every source defines ENTRY. It reads the payload and leaves its results in `out`, 64 numbers. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
extern uint64_t host_table[8], host_counter;
uint64_t host_add(uint64_t, uint64_t), host_mul(uint64_t, uint64_t);
uint64_t host_many(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, double);
uint64_t host_apply(uint64_t (*)(uint64_t), uint64_t);

#ifdef __cplusplus
}
#endif

#define ENTRY(name) uint32_t name##_main(const uint8_t *payload, size_t n, uint64_t *out, void *ctx)
#define NOINLINE __attribute__((noinline))
