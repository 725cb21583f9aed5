/* features: atomics of C11 */
#include "corpus.h"
#include <stdatomic.h>

static atomic_uint_fast64_t total = 5;
static atomic_flag once = ATOMIC_FLAG_INIT;
static _Atomic(uint32_t) word32;
static _Atomic uint8_t byte;

CASE(c_atomics)
{
    atomic_store(&total, 5);
    atomic_store_explicit(&word32, 0, memory_order_release);
    byte = 0;
    atomic_flag_clear(&once);
    for (size_t i = 0; i < words(n) && i < 200; i++) {
        uint64_t value = word(in, n, i);
        uint32_t expected = (uint32_t)value;
        put(w, atomic_fetch_add(&total, value));
        put(w, atomic_fetch_xor_explicit(&word32, expected, memory_order_acq_rel));
        put(w, atomic_compare_exchange_strong(&word32, &expected, 3) + (uint64_t)expected * 2);
        put(w, atomic_exchange(&byte, (uint8_t)value));
        byte += 3;
        put(w, atomic_flag_test_and_set(&once));
        atomic_thread_fence(memory_order_seq_cst);
    }
    put(w, atomic_load(&total) + byte + word32);
}
