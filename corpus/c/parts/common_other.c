#include <stdint.h>

extern uint64_t corpus_common[10];
uint32_t corpus_common_defined = 9;

void corpus_common_step(uint64_t i)
{
    corpus_common[(i + 3) % 10] ^= i;
    corpus_common_defined = corpus_common_defined * 5 + 1;
}
